# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Packaging. What was tested together is pinned in constraints.txt; here are the ranges that should work."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+?)"', (HERE / "hf_memaug" / "__init__.py").read_text(encoding="utf-8"))[1]

EXTRAS = {
    "report": ["matplotlib>=3.8"],
    "docs": ["latex2mathml>=3.77", "mkdocs>=1.6,<2", "mkdocs-material>=9.5,<10", "mkdocstrings[python]>=0.27"],
    "app": ["gradio>=6.0,<7", "jinja2>=3.1"],
    "faiss": ["faiss-cpu>=1.9"],
    "graph": ["torch-geometric>=2.6", "rdkit>=2024.3"],
    "logs": ["tensorboard>=2.16"],
}
EXTRAS["dev"] = [
    *EXTRAS["docs"],
    *EXTRAS["report"],
    *EXTRAS["app"],
    *EXTRAS["faiss"],
    *EXTRAS["graph"],
    *EXTRAS["logs"],
    "build>=1.2",
    "hypothesis>=6.100",
    "mypy>=1.15",
    "onnxruntime>=1.20",
    "onnxscript>=0.5",
    "parameterized>=0.9",
    "playwright>=1.50",
    "pre-commit>=4",
    "pytest>=8",
    "pytest-xdist>=3.5",
    "ruff>=0.12",
]

setup(
    name="hf_memaug",
    version=VERSION,
    description="Memory-augmented Hugging Face models that hold up when the data shifts between domains",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The hf_memaug authors",
    license="Apache-2.0",
    packages=find_packages(include=["hf_memaug", "hf_memaug.*", "hf_memaug_cli"]),
    package_data={
        "hf_memaug": ["papers.bib", "py.typed"],
        "hf_memaug.data": ["vocabulary.json"],
        "hf_memaug.app": ["page.css", "page.html", "space.app.py.jinja", "space.README.md.jinja"],
        "hf_memaug.hub": ["card.md.jinja"],
        "hf_memaug.runs": ["run_card.md.jinja"],
        "hf_memaug.reporting.html": ["report.html.jinja", "report.css", "report.js"],
    },
    python_requires=">=3.10",
    install_requires=[
        "accelerate>=1.1",
        "datasets>=3.0",
        "evaluate>=0.4.3",
        "huggingface_hub>=1.0",
        "jinja2>=3.1",
        "numpy>=1.24",
        "peft>=0.18",
        "pillow>=10.0",
        "pyyaml>=6.0",
        "safetensors>=0.5",
        "scikit-learn>=1.4",
        "scipy>=1.11",
        "torch>=2.6",
        "transformers>=5.17,<6",
        "typer>=0.15",
    ],
    entry_points={"console_scripts": ["hf-memaug = hf_memaug_cli.app:main"]},
    extras_require=EXTRAS,
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    keywords="domain generalization, memory, transformers, hugging face, continual learning",
)
