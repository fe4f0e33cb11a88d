# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Molecules for the app: a SMILES to the inputs of a graph model, and its drawing."""

from hf_memaug.app.checkpoints import Checkpoint
from hf_memaug.app.errors import NotServed
from hf_memaug.data.graphs import Graph, GraphCollator
from hf_memaug.data.molecules import graph_from_smiles

# More than any molecule that somebody types; and the most atoms that a drawing still shows.
MOST_LETTERS, _MOST_DRAWN = 2_000, 150


def checked_graph(smiles: str | None) -> Graph:
    smiles = (smiles or "").strip()
    if not smiles:
        raise NotServed("There is no molecule yet. Type its SMILES, such as `CCO`, then ask again.")
    if len(smiles) > MOST_LETTERS:
        raise NotServed(f"The SMILES has {len(smiles):,} letters, more than the {MOST_LETTERS:,} taken here.")
    try:
        return graph_from_smiles(smiles)
    except ValueError as error:
        raise NotServed(f"This is no molecule that can be read: {str(error).replace('`smiles` ', 'it ')}") from error


def graph_inputs(checkpoint: Checkpoint, graph: Graph) -> dict:
    if not checkpoint.config.backbone_config.edge_vocab_sizes:
        graph = {name: value for name, value in graph.items() if name != "edge_features"}
    inputs = GraphCollator()([{"graph": graph}])
    device = checkpoint.model.device
    return {name: value.to(device) if hasattr(value, "to") else value for name, value in inputs.items()}


def drawing(smiles: str, width: int = 420, height: int = 300) -> str | None:
    """The molecule as SVG; None where it is too large for one, or RDKit can read molecules and not draw them."""
    try:
        from rdkit import Chem
        from rdkit.Chem.Draw import rdMolDraw2D
    except ImportError:
        return None
    molecule = Chem.MolFromSmiles(smiles)
    if molecule is None or molecule.GetNumAtoms() > _MOST_DRAWN:
        return None
    draw = rdMolDraw2D.MolDraw2DSVG(width, height)
    rdMolDraw2D.PrepareAndDrawMolecule(draw, molecule)
    draw.FinishDrawing()
    return draw.GetDrawingText()
