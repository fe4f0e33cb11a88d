# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Molecules as graphs, with the nine features of atoms and three of bonds that OGB (Hu et al., 2020) has."""

from typing import Any

from hf_memaug.data.broken_rows import check_column
from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.graphs import Graph, undirected_graph
from hf_memaug.data.loading import load_domains
from hf_memaug.messages import did_you_mean

# For each feature its values, in order. One that is not among them counts as the last.
ATOM_FEATURES: dict[str, tuple] = {
    "element": (*range(1, 119), "other"),
    "chirality": ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER", "other"),
    "degree": (*range(11), "other"),
    "formal_charge": (*range(-5, 6), "other"),
    "hydrogens": (*range(9), "other"),
    "radical_electrons": (*range(5), "other"),
    "hybridization": ("SP", "SP2", "SP3", "SP3D", "SP3D2", "other"),
    "aromatic": (False, True),
    "in_ring": (False, True),
}
BOND_FEATURES: dict[str, tuple] = {
    "kind": ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC", "other"),
    # Atropisomers, which OGB does not know, count as STEREOANY.
    "stereo": ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY"),
    "conjugated": (False, True),
}
# `node_vocab_sizes` and `edge_vocab_sizes` of a model of molecules.
ATOM_VOCAB_SIZES = [len(values) for values in ATOM_FEATURES.values()]
BOND_VOCAB_SIZES = [len(values) for values in BOND_FEATURES.values()]


def graph_from_smiles(smiles: str) -> Graph:
    """
    The graph of a molecule: atoms without their hydrogens as nodes, bonds as edges. `ATOM_FEATURES` and `BOND_FEATURES`
    say what the features mean, `ATOM_VOCAB_SIZES` and `BOND_VOCAB_SIZES` how many values they have.
    """
    try:
        from rdkit import Chem, rdBase
    except ImportError as error:
        raise ImportError("`smiles` are read by RDKit; run `pip install hf_memaug[graph]`.") from error
    if not isinstance(smiles, str):
        raise ValueError(f"`smiles` is a {type(smiles).__name__}; it must be a text.")
    # RDKit writes its own complaint to the terminal otherwise.
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
    if molecule is None:
        raise ValueError(f"`smiles` cannot be parsed: {smiles!r}.")
    if not molecule.GetNumAtoms():
        raise ValueError(f"`smiles` is a molecule without atoms: {smiles!r}.")
    atoms = [_places(ATOM_FEATURES, _atom(atom)) for atom in molecule.GetAtoms()]
    bonds = list(molecule.GetBonds())
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds]
    facts = [(str(bond.GetBondType()), str(bond.GetStereo()), bond.GetIsConjugated()) for bond in bonds]
    return undirected_graph(atoms, ends, [_places(BOND_FEATURES, one) for one in facts])


def _atom(atom) -> tuple:
    return (
        atom.GetAtomicNum(),
        str(atom.GetChiralTag()),
        atom.GetTotalDegree(),
        atom.GetFormalCharge(),
        atom.GetTotalNumHs(),
        atom.GetNumRadicalElectrons(),
        str(atom.GetHybridization()),
        atom.GetIsAromatic(),
        atom.IsInRing(),
    )


def _places(features: dict[str, tuple], values: tuple) -> list[int]:
    """The place of each value among those that its feature can have; the last one is for all others."""
    pairs = zip(features.values(), values, strict=True)
    return [known.index(value) if value in known else len(known) - 1 for known, value in pairs]


def molecule_graphs(dataset: DomainDataset, smiles: str = "smiles", broken: str = "refuse") -> DomainDataset:
    """
    Adds a column `graph` to rows of molecules.

    Args:
        dataset (`DomainDataset`): rows with a SMILES.
        smiles (`str`, *optional*, defaults to `"smiles"`): the column that holds it.
        broken (`str`, *optional*, defaults to `"refuse"`): what to do with a SMILES that cannot be parsed, or has no
            atom: `"refuse"` names them in an error, `"skip"` in a warning, and gives the dataset without them.
    """
    if smiles not in dataset.column_names:
        hint = did_you_mean(smiles, dataset.column_names)
        raise ValueError(f"`smiles` is {smiles!r}, but `dataset` has no such column. {hint}")
    graphs: list[Graph] = []
    kept = check_column(
        dataset, smiles, lambda text: graphs.append(graph_from_smiles(text)), broken, "rows are no molecules"
    )
    return kept.with_columns(graph=graphs)


def load_molecules(source: Any, *, smiles: str = "smiles", broken: str = "refuse", **kwargs) -> DomainDataset:
    """
    Loads rows with a SMILES from any source of `load_domains`, and adds their graphs.

    Args:
        source (`Any`): a file, a folder of `<domain>.<split>.*` files, a list of dicts, ...: see `load_domains`.
        smiles (`str`, *optional*, defaults to `"smiles"`): the column with the SMILES, called `smiles` afterwards.
        broken (`str`, *optional*, defaults to `"refuse"`): see `molecule_graphs`.
        kwargs (*optional*): `label`, `domain`, `split`, `labels`, `on_empty` of `load_domains`.
    """
    # Not as `text`, which is compared without regard to case: in a SMILES, c1ccccc1 and C1CCCCC1 are two molecules.
    text = "text" if smiles == "text" else None
    rows = molecule_graphs(load_domains(source, text=text, **kwargs), smiles, broken)
    return rows if smiles == "smiles" else rows.with_columns(smiles=rows[smiles]).without_columns(smiles)
