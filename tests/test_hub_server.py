# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The loopback hub itself: without these, a failing push or pull elsewhere could be the test hub's own fault."""

import base64
import hashlib
import http.client
import json
import socket
import subprocess

import pytest
from hub_server import LoopbackHub, run_client

REPO = "me/tiny"
SHA1_EMPTY = hashlib.sha1(b"blob 0\0").hexdigest()


@pytest.fixture
def hub():
    with LoopbackHub() as server:
        yield server


def ask(hub, method, path, body=None, token=None, **headers):
    """One request without the client library, for what that library never sends."""
    connection = http.client.HTTPConnection(hub.url.removeprefix("http://"), timeout=10)
    if token:
        headers["Authorization"] = f"Bearer {token}"
    connection.request(method, path, body=body, headers=headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, answer.headers, data


def ndjson(*operations):
    lines = [{"key": "header", "value": {"summary": "test", "description": ""}}]
    lines += [{"key": key, "value": value} for key, value in operations]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def regular(path, data):
    return "file", {"path": path, "encoding": "base64", "content": base64.b64encode(data).decode()}


def test_reading_with_ranges_and_error_codes(hub):
    hub.create_repo(REPO)
    old = hub.add_files(REPO, {"a b/x.bin": b"0123456789", "empty.txt": b""})
    new = hub.add_files(REPO, {"a b/x.bin": b"new", "w.safetensors": b"weights"})
    at = f"/{REPO}/resolve/{old}/a%20b/x.bin"

    status, headers, data = ask(hub, "HEAD", at)
    assert (status, headers["Content-Length"], data, headers["X-Repo-Commit"]) == (200, "10", b"", old)
    for span, expected, content_range in [
        ("bytes=2-4", b"234", "bytes 2-4/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-2", b"89", "bytes 8-9/10"),
        ("bytes=8-99", b"89", "bytes 8-9/10"),
    ]:
        status, headers, data = ask(hub, "GET", at, Range=span)
        assert (status, data, headers["Content-Range"]) == (206, expected, content_range)
    status, headers, _ = ask(hub, "GET", at, Range="bytes=10-")
    assert (status, headers["Content-Range"]) == (416, "bytes */10")
    assert ask(hub, "GET", at, Range="lines=1-2")[0::2] == (200, b"0123456789")

    # Branches and oids; the two kinds of ETag.
    status, headers, data = ask(hub, "GET", f"/{REPO}/resolve/main/a%20b/x.bin")
    assert (status, data, headers["X-Repo-Commit"]) == (200, b"new", new)
    etag = ask(hub, "HEAD", f"/{REPO}/resolve/main/w.safetensors")[1]["ETag"]
    assert etag.strip('"') == hashlib.sha256(b"weights").hexdigest()
    assert ask(hub, "HEAD", f"/{REPO}/resolve/main/empty.txt")[1]["ETag"].strip('"') == SHA1_EMPTY

    for path, code in [
        (f"/{REPO}/resolve/main/none", "EntryNotFound"),
        (f"/{REPO}/resolve/none/empty.txt", "RevisionNotFound"),
        ("/me/none/resolve/main/empty.txt", "RepoNotFound"),
        ("/none/resolve/main/empty.txt", "RepoNotFound"),
        ("/api/models/me/none", "RepoNotFound"),
        (f"/api/models/{REPO}/revision/none", "RevisionNotFound"),
        (f"/api/models/{REPO}/tree/main/none", "EntryNotFound"),
    ]:
        status, headers, _ = ask(hub, "GET", path, token=hub.token)
        assert (status, headers["X-Error-Code"]) == (404, code), path

    tree = json.loads(ask(hub, "GET", f"/api/models/{REPO}/tree/main")[2])
    assert [(e["type"], e["path"]) for e in tree] == [
        ("file", ".gitattributes"),
        ("directory", "a b"),
        ("file", "empty.txt"),
        ("file", "w.safetensors"),
    ]
    hub.fail_next(418, "/tree/")
    assert [ask(hub, "GET", f"/api/models/{REPO}{end}")[0] for end in ("", "/tree/main", "/tree/main")] == [
        200,
        418,
        200,
    ]
    assert hub.log[-2:] == [("GET", f"/api/models/{REPO}/tree/main", s) for s in (418, 200)]


def test_commits_are_all_or_nothing(hub):
    hub.create_repo(REPO)
    before, path = hub.files(REPO), f"/api/models/{REPO}/commit/main"
    good, sha = regular("good.txt", b"good"), hashlib.sha256(b"big").hexdigest()
    big = ("lfsFile", {"path": "w.safetensors", "algo": "sha256", "oid": sha, "size": 3})

    for body in (
        ndjson(good)[:-20],  # the last line is cut off
        ndjson(good).split(b"\n", 1)[1],  # no header
        ndjson(good, ("file", {"path": "b", "encoding": "base64", "content": "?"})),
        ndjson(good, regular("../up", b"")),
        ndjson(good, ("moveFile", {"path": "good.txt"})),
        ndjson(good, big),  # never uploaded
        b"",
        b"[1]\n",
    ):
        assert ask(hub, "POST", path, body, hub.token)[0] == 400, body
    assert ask(hub, "POST", path, ndjson(good, ("deletedFile", {"path": "none"})), hub.token)[0] == 404
    stale = ndjson(good).replace(b'"summary"', b'"parentCommit": "%s", "summary"' % (b"0" * 40))
    assert ask(hub, "POST", path, stale, hub.token)[0] == 412
    assert ask(hub, "POST", path.replace("main", "none"), ndjson(good), hub.token)[0] == 404

    # A client that dies in mid-body: its lines are complete, but the announced length is not reached.
    with socket.create_connection(("127.0.0.1", int(hub.url.rsplit(":", 1)[1])), timeout=10) as raw:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {hub.token}\r\nContent-Length: 9999\r\n\r\n"
        raw.sendall(head.encode() + ndjson(good))
        raw.shutdown(socket.SHUT_WR)
        assert raw.recv(100) == b""
    assert hub.log[-1] == ("POST", path, None)

    # An LFS object counts only with the announced size and hash.
    batch = json.dumps({"objects": [{"oid": sha, "size": 3}]})
    upload = json.loads(ask(hub, "POST", f"/{REPO}.git/info/lfs/objects/batch", batch, hub.token)[2])
    href = upload["objects"][0]["actions"]["upload"]["href"].removeprefix(hub.url)
    assert ask(hub, "PUT", href, b"bug")[0] == 400
    assert ask(hub, "POST", path, ndjson(good, big), hub.token)[0] == 400
    assert ask(hub, "PUT", href, b"big")[0] == 200
    wrong_size = ("lfsFile", {**big[1], "size": 4})
    assert ask(hub, "POST", path, ndjson(good, wrong_size), hub.token)[0] == 400

    assert hub.files(REPO) == before and len(hub.commits(REPO)) == 1
    assert ask(hub, "POST", path, ndjson(good, big), hub.token)[0] == 200
    assert hub.files(REPO) == {**before, "good.txt": b"good", "w.safetensors": b"big"}
    assert ask(hub, "POST", path, ndjson(("deletedFile", {"path": "good.txt"})), hub.token)[0] == 200
    assert hub.files(REPO) == {**before, "w.safetensors": b"big"}
    assert [len(c.files) for c in hub.commits(REPO)] == [2, 3, 1]


def test_tokens(hub):
    hub.create_repo(REPO)
    hub.create_repo("me/secret", private=True)
    read, write, create = f"/api/models/{REPO}", f"/api/models/{REPO}/commit/main", "/api/repos/create"

    assert ask(hub, "GET", read)[0] == 200
    assert [ask(hub, "GET", "/api/models/me/secret", token=t)[0] for t in (None, hub.token)] == [401, 200]
    missing = ask(hub, "GET", "/api/models/me/none")
    assert ask(hub, "GET", "/api/models/me/secret")[2] == missing[2]  # an anonymous reader cannot tell them apart
    for method, path, body in (("GET", read, None), ("POST", write, ndjson()), ("GET", "/api/whoami-v2", None)):
        status, headers, data = ask(hub, method, path, body, "wrong")
        assert (status, json.loads(data)["error"]) == (401, "Invalid credentials in Authorization header")
        assert headers["X-Error-Message"] == "Invalid credentials in Authorization header"
    for path, body in ((write, ndjson()), (create, b'{"name": "other"}'), (f"/{REPO}.git/info/lfs/objects/batch", "")):
        assert ask(hub, "POST", path, body)[0] == 401
    assert len(hub.commits(REPO)) == 1
    assert [ask(hub, "POST", create, b'{"name": "other"}', hub.token)[0] for _ in range(2)] == [200, 409]


def test_client_round_trip_revisions_and_errors(hub, tmp_path):
    source = tmp_path / "source"
    (source / "sub" / "deep").mkdir(parents=True)
    first = {
        "model.safetensors": bytes(range(256)) * 2000,
        "config.json": b"{}",
        "sub/deep/f.txt": b"deep \xff\n",
        "sub/empty": b"",
        "README.md": b"---\ntags: [x]\n---\nhello\n",
    }
    for name, data in first.items():
        (source / name).write_bytes(data)
    run_client(
        f"""
        import shutil
        from pathlib import Path
        from huggingface_hub import HfApi, snapshot_download, hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError
        from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

        def refused(kind, function, *args, **kwargs):
            try:
                function(*args, **kwargs)
            except kind as error:
                return error
            raise AssertionError(f"{{function}} did not raise {{kind}}")

        def content(folder):
            return {{str(p.relative_to(folder)): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}}

        api, repo, source = HfApi(), {REPO!r}, Path({str(source)!r})
        assert api.whoami()["name"] == "me"
        assert refused(HfHubHTTPError, HfApi(token="wrong").create_repo, repo).response.status_code == 401
        api.create_repo(repo)
        assert api.create_repo(repo, exist_ok=True).repo_id == repo
        assert refused(HfHubHTTPError, api.create_repo, repo).response.status_code == 409

        # There and back.
        one = api.upload_folder(repo_id=repo, folder_path=source).oid
        local = content(source)
        pulled = content(snapshot_download(repo))
        assert pulled.pop(".gitattributes") and pulled == local
        assert api.upload_folder(repo_id=repo, folder_path=source).oid == one, "nothing changed, so no new commit"

        # A second commit; the first stays what it was. A branch grows by itself.
        (source / "model.safetensors").write_bytes(b"second")
        shutil.rmtree(source / "sub")
        two = api.upload_folder(repo_id=repo, folder_path=source, delete_patterns="sub/*").oid
        assert content(snapshot_download(repo, revision=one))["model.safetensors"] == local["model.safetensors"]
        assert content(snapshot_download(repo))["model.safetensors"] == b"second"
        api.create_branch(repo, branch="side/1", revision=one)
        api.upload_file(repo_id=repo, path_or_fileobj=b"side", path_in_repo="config.json", revision="side/1")
        assert Path(hf_hub_download(repo, "config.json", revision="side/1")).read_bytes() == b"side"
        assert Path(hf_hub_download(repo, "config.json")).read_bytes() == b"{{}}"
        assert api.model_info(repo).sha == two and api.model_info(repo, revision=one).sha == one
        assert api.model_info(repo, files_metadata=True).siblings[-1].lfs.size == 6
        assert set(api.list_repo_files(repo)) == {{".gitattributes", *content(source)}}

        # Errors that a user meets.
        refused(RepositoryNotFoundError, snapshot_download, "me/none")
        refused(RepositoryNotFoundError, api.model_info, "none")
        refused(RevisionNotFoundError, snapshot_download, repo, revision="none")
        refused(EntryNotFoundError, hf_hub_download, repo, "none")
        wrong = dict(repo_id=repo, path_or_fileobj=b"x", path_in_repo="x")
        assert refused(HfHubHTTPError, HfApi(token="wrong").upload_file, **wrong).response.status_code == 401
        assert refused(HfHubHTTPError, HfApi(token=False).upload_file, **wrong).response.status_code == 401
        api.create_repo("me/secret", private=True)
        refused(RepositoryNotFoundError, HfApi(token=False).model_info, "me/secret")
        assert HfApi(token=False).model_info(repo).sha == two
        """,
        hub,
        tmp_path / "home",
    )
    one = hub.commits(REPO)[1]
    assert {k: v for k, v in hub.files(REPO, one.oid).items() if k != ".gitattributes"} == first
    assert hub.files(REPO)["model.safetensors"] == b"second"
    assert len(hub.commits(REPO)) == 3 and len(hub.commits(REPO, "side/1")) == 3
    assert sum(method == "PUT" for method, _, _ in hub.log) == 2


UPLOAD = """
    import time
    time.sleep = lambda seconds: None  # the client waits 23 s in all before it gives up a PUT
    from huggingface_hub import upload_folder
    print(upload_folder(repo_id="me/tiny", folder_path={source!r}).oid)
"""


def test_broken_uploads_leave_nothing_behind(hub, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "model.safetensors").write_bytes(bytes(1_000_000))
    (source / "notes.txt").write_bytes(b"n" * 50_000)
    hub.create_repo(REPO)
    before, code = hub.files(REPO), UPLOAD.format(source=str(source))

    def client():
        return run_client(code, hub, tmp_path / "home", check=False)

    hub.break_uploads(after_bytes=300_000, times=6)  # the first try and the client's five repetitions
    done = client()
    assert done.returncode != 0 and "httpx2" in done.stderr, done.stderr
    assert [status for method, _, status in hub.log if method == "PUT"] == [None] * 6
    assert hub.files(REPO) == before and len(hub.commits(REPO)) == 1

    # One broken PUT is repaired by the client itself; a broken commit is not, and none of its files may show.
    hub.break_uploads(after_bytes=300_000, path_regex="/lfs-upload/")
    hub.break_uploads(after_bytes=20_000, path_regex="/commit/")
    done = client()
    assert done.returncode != 0 and "httpx2" in done.stderr, done.stderr
    assert [status for method, _, status in hub.log if method == "PUT"] == [None] * 7 + [200]
    assert hub.log[-1] == ("POST", f"/api/models/{REPO}/commit/main", None)
    assert hub.files(REPO) == before and len(hub.commits(REPO)) == 1

    done = client()
    assert done.returncode == 0, done.stderr
    assert hub.commits(REPO)[0].oid == done.stdout.strip()
    assert hub.files(REPO) == {**before, **{p.name: p.read_bytes() for p in source.iterdir()}}


def test_transformers_push_and_pull(tmp_path, capfd):
    # Every file the "regular" way here: the other tests go through LFS.
    with LoopbackHub(lfs_suffixes=()) as hub:
        run_client(
            """
            import torch
            from transformers import AutoModel, BertConfig, BertModel

            torch.manual_seed(0)
            sizes = dict(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
            model = BertModel(BertConfig(**sizes, max_position_embeddings=6))
            first = model.push_to_hub("me/bert").oid
            old = {name: value.clone() for name, value in model.state_dict().items()}
            with torch.no_grad():
                model.pooler.dense.bias.fill_(3)
            model.push_to_hub("me/bert")

            def same(pulled, state):
                pulled = pulled.state_dict()
                return pulled.keys() == state.keys() and all(torch.equal(pulled[k], v) for k, v in state.items())

            assert same(AutoModel.from_pretrained("me/bert"), model.state_dict())
            assert same(AutoModel.from_pretrained("me/bert", revision=first), old)
            for name, options in (("me/none", {}), ("me/bert", {"revision": "none"}), ("me/bert", {"token": "wrong"})):
                try:
                    AutoModel.from_pretrained(name, force_download=True, **options)
                except OSError:
                    continue
                raise AssertionError((name, options))
            """,
            hub,
            tmp_path / "home",
        )
        assert {"README.md", "config.json", "model.safetensors"} < set(hub.files("me/bert"))
        assert len(hub.commits("me/bert")) == 3
        assert not any(method == "PUT" for method, _, _ in hub.log)

        with pytest.raises(subprocess.CalledProcessError):
            run_client(
                "import os; raise SystemExit(os.environ.get('HF_TOKEN', 'no token'))", hub, tmp_path, HF_TOKEN=None
            )
        assert "no token" in capfd.readouterr().err
