# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0

import pytest

from hf_memaug.data import DomainDataset, find_overlap, graph_from_smiles, load_molecules, molecule_graphs
from hf_memaug.data.molecules import ATOM_FEATURES, ATOM_VOCAB_SIZES, BOND_FEATURES, BOND_VOCAB_SIZES


@pytest.fixture(autouse=True)
def rdkit():
    pytest.importorskip("rdkit", reason="RDKit is not installed: the extra `graph`")


def words(features, table):
    """What the numbers stand for."""
    return {name: values[place] for place, (name, values) in zip(features, table.items(), strict=True)}


def test_the_sizes_are_those_of_ogb():
    assert ATOM_VOCAB_SIZES == [119, 5, 12, 12, 10, 6, 6, 2, 2] and BOND_VOCAB_SIZES == [5, 6, 2]


def test_a_molecule_by_hand():
    # Propenal.
    graph = graph_from_smiles("C=CC=O")
    atoms = [words(row, ATOM_FEATURES) for row in graph["node_features"]]
    assert [atom["element"] for atom in atoms] == [6, 6, 6, 8] and [atom["hydrogens"] for atom in atoms] == [2, 1, 1, 0]
    # The degree counts hydrogens, too, though they are no nodes.
    assert [atom["degree"] for atom in atoms] == [3, 3, 3, 1]
    assert {atom["hybridization"] for atom in atoms} == {"SP2"}
    assert not any(atom["aromatic"] or atom["in_ring"] or atom["formal_charge"] for atom in atoms)
    bonds = {
        pair: words(row, BOND_FEATURES)["kind"]
        for pair, row in zip(zip(*graph["edge_index"], strict=True), graph["edge_features"], strict=True)
    }
    assert bonds == {
        **dict.fromkeys([(0, 1), (1, 0), (2, 3), (3, 2)], "DOUBLE"),
        **dict.fromkeys([(1, 2), (2, 1)], "SINGLE"),
    }
    assert all(words(row, BOND_FEATURES)["conjugated"] for row in graph["edge_features"])


def test_each_feature_is_read():
    def atoms(smiles):
        return [words(row, ATOM_FEATURES) for row in graph_from_smiles(smiles)["node_features"]]

    def bonds(smiles):
        return [words(row, BOND_FEATURES) for row in graph_from_smiles(smiles)["edge_features"]]

    assert all(atom["aromatic"] and atom["in_ring"] for atom in atoms("c1ccccc1"))
    assert {atom["aromatic"] for atom in atoms("C1CCCCC1")} == {False}
    assert atoms("[NH4+]")[0]["formal_charge"] == 1 and atoms("[O-]C")[0]["formal_charge"] == -1
    assert atoms("[CH3]")[0]["radical_electrons"] == 1
    assert {atoms(smiles)[1]["chirality"] for smiles in ("F[C@H](Cl)Br", "F[C@@H](Cl)Br")} == {
        "CHI_TETRAHEDRAL_CW",
        "CHI_TETRAHEDRAL_CCW",
    }
    assert atoms("*C")[0]["element"] == "other"
    assert {bond["stereo"] for bond in bonds("F/C=C/F")} == {"STEREONONE", "STEREOE"}
    assert {bond["stereo"] for bond in bonds("F/C=C\\F")} == {"STEREONONE", "STEREOZ"}
    assert bonds("C#N")[0]["kind"] == "TRIPLE" and bonds("c1ccccc1")[0]["kind"] == "AROMATIC"
    assert bonds("[NH3]->[Cu]")[0]["kind"] == "other"


@pytest.mark.parametrize("smiles", ["C1CC", "not a molecule", "C(C)(C)(C)(C)C"])
def test_what_cannot_be_parsed(smiles, capfd):
    with pytest.raises(ValueError, match="`smiles` cannot be parsed: ") as caught:
        graph_from_smiles(smiles)
    assert repr(smiles) in str(caught.value) and capfd.readouterr().err == ""
    with pytest.raises(ValueError, match="`smiles` is a molecule without atoms: ''"):
        graph_from_smiles("")
    with pytest.raises(ValueError, match="`smiles` is a NoneType"):
        graph_from_smiles(None)


class TestRows:
    rows = DomainDataset({"smiles": ["CC", "C1CC", "CCO", ""], "label": [0, 1, 1, 0], "domain": list("aabb")})

    def test_broken_ones_are_named(self):
        named = r"2 of 4 rows are no molecules. row 1 \(domain 'a'\): .*'C1CC'.* row 3 \(domain 'b'\): .*without atoms"
        with pytest.raises(ValueError, match=named):
            molecule_graphs(self.rows)

    def test_or_skipped(self, caplog):
        kept = molecule_graphs(self.rows, broken="skip")
        assert kept["smiles"] == ["CC", "CCO"] and kept.labels == [0, 1] and "'C1CC'" in caplog.text
        assert kept["graph"] == [graph_from_smiles("CC"), graph_from_smiles("CCO")]
        with pytest.raises(ValueError, match="`broken` is 'no'"):
            molecule_graphs(self.rows, broken="no")
        with pytest.raises(ValueError, match="`smiles` is 'text', but `dataset` has no such column"):
            molecule_graphs(self.rows, smiles="text")

    def test_a_column_that_is_not_there(self):
        rows = [{"structure": "CC", "label": 0, "domain": "a"}]
        with pytest.raises(ValueError, match="`smiles` is 'structures', but .* Did you mean 'structure'?"):
            load_molecules(rows, smiles="structures")

    def test_from_files(self, tmp_path):
        (tmp_path / "bbbp.train.csv").write_text("structure,label\nCCO,0\nc1ccccc1,1\n")
        dataset = load_molecules(tmp_path, smiles="structure", split="train")
        assert set(dataset.column_names) == {"smiles", "graph", "label", "domain"} and dataset.domains == ["bbbp"]
        assert dataset["graph"][1] == graph_from_smiles("c1ccccc1")
        assert load_molecules([{"text": "CC", "label": 0, "domain": "x"}], smiles="text")["smiles"] == ["CC"]
        # In lower case it is another molecule.
        assert load_molecules([{"smiles": "CC", "label": 0}], domain=None).domains == ["all"]
        ring = load_molecules([{"smiles": "C1CCCCC1", "label": 0, "domain": "x"}])
        assert find_overlap(ring, dataset) == [] and find_overlap(dataset, dataset) == [(0, 0), (1, 1)]
