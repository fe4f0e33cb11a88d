# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""A small model hub on 127.0.0.1, for tests that push and pull without a network.

It speaks the part of the hub's protocol that `huggingface_hub` uses for model repositories. It was written from the
client's side of that protocol, so a passing test shows that a client works with this reading of it, not with the
real hub. Everything lives in memory. Use: `with LoopbackHub() as hub: run_client("...", hub, tmp_path)`.
"""

import base64
import hashlib
import json
import os
import re
import socketserver
import subprocess
import sys
import textwrap
import threading
import time
from collections import namedtuple
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

_REPO = r"(?P<repo>[^/]+(?:/[^/]+)?)"
_REV = r"(?P<rev>[^/]+)"
_ROUTES = []

Commit = namedtuple("Commit", "oid parent message date files")  # files: path -> Blob
Reply = namedtuple("Reply", "status body headers", defaults=({},))


class Blob:
    """One file of a repository, with the hashes that the protocol names it by."""

    def __init__(self, data: bytes, lfs: bool = False):
        self.data, size, sha256 = data, len(data), hashlib.sha256(data).hexdigest()
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
        self.lfs = {"oid": sha256, "sha256": sha256, "size": size, "pointerSize": len(pointer)} if lfs else None
        stored = pointer if lfs else data  # what git itself would hold
        self.oid = hashlib.sha1(b"blob %d\0" % len(stored) + stored).hexdigest()
        # The client compares this with its own hash of a file to find out that the file did not change.
        self.etag = sha256 if lfs else self.oid


class HubError(Exception):
    def __init__(self, status: int, message: str, code: str | None = None, **headers: str):
        super().__init__(message)
        headers |= {"X-Error-Message": ascii(message)[1:-1]} | ({"X-Error-Code": code} if code else {})
        self.reply = Reply(status, {"error": message}, headers)


class Repo:
    def __init__(self, repo_id: str, private: bool):
        self.id, self.private = repo_id, private
        self.branches, self.commits, self.lfs = {}, {}, {}  # name -> oid, oid -> Commit, sha256 -> bytes

    def resolve(self, revision: str) -> Commit:
        oid = self.branches.get(revision, revision)
        if oid not in self.commits:
            raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return self.commits[oid]

    def push(self, branch: str, message: str, files: dict[str, Blob]) -> Commit:
        parent = self.branches.get(branch)
        # The number of commits is part of the hash, so that two equal changes are still two commits.
        seed = [self.id, branch, parent, message, len(self.commits), sorted((p, b.oid) for p, b in files.items())]
        oid = hashlib.sha1(json.dumps(seed).encode()).hexdigest()
        self.commits[oid] = Commit(oid, parent, message, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), files)
        self.branches[branch] = oid
        return self.commits[oid]

    def parse_commit(self, body: bytes, head: Commit) -> tuple[str, dict[str, Blob]]:
        """The message and the new tree of an NDJSON commit; raises, and changes nothing, if any of it is wrong."""
        lines = [json.loads(line) for line in body.splitlines() if line.strip()]
        if not lines or lines[0]["key"] != "header":
            raise ValueError("the first line is not a header")
        header, files = lines[0]["value"], dict(head.files)
        for line in lines[1:]:
            key, value = line["key"], line["value"]
            path = value["path"]
            if key == "file" and value.get("encoding") == "base64":
                files[path] = Blob(base64.b64decode(value["content"], validate=True))
            elif key == "lfsFile" and value["algo"] == "sha256":
                data = self.lfs.get(value["oid"])
                if data is None or value.get("size", len(data)) != len(data):
                    raise ValueError(f"the LFS object of {path!r} was not uploaded, or has another size")
                files[path] = Blob(data, lfs=True)
            elif key == "deletedFile":
                del files[path]
            else:
                raise ValueError(f"unknown operation {key!r}")
        return header["summary"], files


def tree_entries(commit: Commit) -> list[dict]:
    return [
        {
            "type": "file",
            "oid": blob.oid,
            "size": len(blob.data),
            "path": path,
            **({"lfs": blob.lfs} if blob.lfs else {}),
        }
        for path, blob in sorted(commit.files.items())
    ]


def route(methods: str, pattern: str, token: bool = False):
    def register(function):
        _ROUTES.append((methods.split(), re.compile(pattern), token, function))
        return function

    return register


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body leave in one write, at once: otherwise each answer can wait 40 ms for an acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True
    hub = property(lambda self: self.server.hub)

    def handle_request(self):
        hub, split = self.hub, urlsplit(self.path)
        self.query = parse_qs(split.query)
        try:
            # The body is read even if the answer will be an error: the next request comes on the same connection.
            self.body = self.read_body()
            with hub._lock:  # one request at a time, so that no reader sees half a commit
                reply = self.dispatch(split.path)
        except HubError as error:
            reply = error.reply
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # Not a 500, which the client would repeat: what cannot be read now cannot be read later either.
            reply = HubError(400, f"malformed request: {error!r}").reply
        reply = reply if isinstance(reply, Reply) else Reply(200, reply)
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        kind = "application/octet-stream" if isinstance(reply.body, bytes) else "application/json"
        self.send_response_only(reply.status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = handle_request

    def read_body(self) -> bytes:
        if "Transfer-Encoding" in self.headers:
            self.close_connection = True  # what follows on it is a body that nobody reads
            raise HubError(411, "Length Required")
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def dispatch(self, path: str):
        # Spaces have names of their own on the hub; here they share those of the models.
        path = re.sub("^/api/spaces/", "/api/models/", path).removeprefix("/spaces")
        given = self.headers.get("Authorization")
        # A wrong token is refused even where none is needed; the client knows this message.
        if given is not None and given != f"Bearer {self.hub.token}":
            raise HubError(401, "Invalid credentials in Authorization header")
        fitting = [(r[1].fullmatch(path), *r[2:]) for r in _ROUTES if self.command in r[0] and r[1].fullmatch(path)]
        if not fitting:
            raise HubError(404, f"this hub has no {self.command} {path}")
        match, token, function = fitting[0]
        if token and not given:
            # Over https, the client takes an anonymous 401 for a missing repository even without this code.
            code = "RepoNotFound" if path.startswith("/api/models/") else None
            raise HubError(401, "Invalid username or password.", code)
        found = {name: unquote(value or "") for name, value in match.groupdict().items()}
        if "repo" in found:
            repo = found["repo"] = self.hub._repos.get(found["repo"])
            if repo is None or (repo.private and not given):
                # Missing and private look the same from outside.
                raise HubError(404 if given else 401, "Repository not found", "RepoNotFound")
        return function(self, **found)

    @route("GET", "/api/whoami-v2", token=True)
    def whoami(self):
        name, auth = self.hub.user, {"accessToken": {"displayName": "test", "role": "write"}}
        return {"type": "user", "id": name, "name": name, "fullname": name, "orgs": [], "auth": auth}

    @route("POST", "/api/repos/create", token=True)
    def create_repo(self):
        hub, payload = self.hub, json.loads(self.body)
        if payload.get("type") not in (None, "model", "space"):
            raise HubError(400, "this hub holds models and Spaces only")
        repo_id = f"{payload.get('organization') or hub.user}/{payload['name']}"
        known = {"url": f"{hub.url}/{repo_id}", "name": repo_id, "id": repo_id}
        if repo_id in hub._repos:
            # A client with exist_ok=True reads the address out of this answer.
            return Reply(409, {"error": "You already created this model repo", **known})
        hub.create_repo(repo_id, private=payload.get("visibility") == "private" or bool(payload.get("private")))
        return known

    @route("POST", "/api/validate-yaml")
    def validate_yaml(self):
        return {"errors": [], "warnings": []}

    @route("POST", f"/api/models/{_REPO}/preupload/{_REV}", token=True)
    def preupload(self, repo, rev):
        files, answer = repo.resolve(rev).files, []
        for path in (file["path"] for file in json.loads(self.body)["files"]):
            mode = "lfs" if path.endswith(self.hub.lfs_suffixes) else "regular"
            oid = files[path].etag if path in files else None
            answer.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return {"files": answer}

    @route("POST", f"/{_REPO}\\.git/info/lfs/objects/batch", token=True)
    def lfs_batch(self, repo):
        answer = [{"oid": wanted["oid"], "size": wanted["size"]} for wanted in json.loads(self.body)["objects"]]
        for entry in answer:
            if entry["oid"] not in repo.lfs:
                # The client sends no token with the PUT: the address itself is the permission.
                key = os.urandom(8).hex()
                self.hub._uploads[key] = (repo, entry["oid"], entry["size"])
                entry["actions"] = {"upload": {"href": f"{self.hub.url}/lfs-upload/{key}"}}
        return {"transfer": "basic", "objects": answer}

    @route("PUT", "/lfs-upload/(?P<key>[0-9a-f]+)")
    def lfs_put(self, key):
        if key not in self.hub._uploads:
            raise HubError(403, "unknown upload address")
        repo, oid, size = self.hub._uploads[key]
        if len(self.body) != size or hashlib.sha256(self.body).hexdigest() != oid:
            raise HubError(400, "the uploaded bytes do not have the announced size and sha256")
        repo.lfs[oid] = self.body
        return {}

    @route("POST", f"/api/models/{_REPO}/commit/{_REV}", token=True)
    def commit(self, repo, rev):
        head = repo.resolve(rev)
        if rev not in repo.branches or "create_pr" in self.query:
            raise HubError(400, "this hub commits to branches only")
        oid = repo.push(rev, *repo.parse_commit(self.body, head)).oid
        return {"success": True, "commitOid": oid, "commitUrl": f"{self.hub.url}/{repo.id}/commit/{oid}"}

    @route("POST", f"/api/models/{_REPO}/branch/{_REV}", token=True)
    def create_branch(self, repo, rev):
        if rev in repo.branches:
            raise HubError(409, f"Reference already exists: refs/heads/{rev}")
        repo.branches[rev] = repo.resolve(json.loads(self.body).get("startingPoint", "main")).oid
        return {}

    @route("GET", f"/api/models/{_REPO}/tree/{_REV}")
    def tree(self, repo, rev):
        return tree_entries(repo.resolve(rev))

    @route("GET", f"/api/models/{_REPO}(?:/revision/{_REV})?")
    def model_info(self, repo, rev):
        commit = repo.resolve(rev or "main")
        about = {"id": repo.id, "sha": commit.oid, "lastModified": commit.date, "private": repo.private, "siblings": []}
        for path, blob in sorted(commit.files.items()):
            about["siblings"] += [{"rfilename": path, "size": len(blob.data), "blobId": blob.oid, "lfs": blob.lfs}]
        return about

    @route("GET HEAD", f"/{_REPO}/resolve/{_REV}/(?P<path>.+)")
    def resolve(self, repo, rev, path):
        commit = repo.resolve(rev)
        headers = {"X-Repo-Commit": commit.oid}
        if path not in commit.files:
            # With the commit, the client can remember that this file does not exist.
            raise HubError(404, f"Entry not found: {path}", "EntryNotFound", **headers)
        blob = commit.files[path]
        return Reply(200, blob.data, {**headers, "ETag": f'"{blob.etag}"'})


class Server(ThreadingHTTPServer):
    request_queue_size = 64
    # The method between these two in the inheritance asks a name server for the host's full name.
    server_bind = socketserver.TCPServer.server_bind

    def handle_error(self, request, client_address):
        # A client that goes away in the middle of an answer is no fault of the server.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class LoopbackHub:
    """The hub, as a context manager."""

    def __init__(self, user: str = "me", lfs_suffixes: tuple[str, ...] = (".safetensors",)):
        self.user, self.lfs_suffixes = user, tuple(lfs_suffixes)  # no suffixes: every file goes the "regular" way
        self.token = f"hf_{os.urandom(17).hex()}"
        self._repos, self._uploads = {}, {}  # id -> Repo, secret part of the address -> (Repo, sha256, size)
        self._lock = threading.RLock()
        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.hub = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *args):
        self._server.shutdown()
        self._server.server_close()

    def env(self, home) -> dict[str, str]:
        """What a client process needs; `huggingface_hub` reads it when it is imported."""
        switches = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        online = {"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "0"}
        return {"HF_ENDPOINT": self.url, "HF_TOKEN": self.token, "HF_HOME": str(home), **switches, **online}

    def create_repo(self, repo: str, private: bool = False) -> None:
        """Like the client's create_repo: the new repository has one commit, with a `.gitattributes`."""
        with self._lock:
            lines = (f"*{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in self.lfs_suffixes)
            self._repos[repo] = Repo(repo, private)
            self._repos[repo].push("main", "initial commit", {".gitattributes": Blob("".join(lines).encode())})

    def files(self, repo: str, revision: str = "main") -> dict[str, bytes]:
        return {path: blob.data for path, blob in self._repos[repo].resolve(revision).files.items()}


def run_client(code: str, hub: LoopbackHub, home, timeout: float = 120, check: bool = True, **env):
    """Run `code` in a new Python with the hub's environment; a value of None removes that variable."""
    # Nothing of the caller's own hub settings, caches, tokens or proxies may reach the client.
    foreign = re.compile(r"HF_|HUGGING|TRANSFORMERS_|.*_PROXY$", re.IGNORECASE)
    merged = {**{k: v for k, v in os.environ.items() if not foreign.match(k)}, **hub.env(home), **env}
    merged = {name: str(value) for name, value in merged.items() if value is not None}
    command, options = [sys.executable, "-c", textwrap.dedent(code)], {"capture_output": True, "text": True}
    done = subprocess.run(command, env=merged, timeout=timeout, **options)
    if check and done.returncode != 0:
        print(done.stderr, file=sys.stderr)
        done.check_returncode()
    return done
