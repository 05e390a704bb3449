"""A small Hugging Face Hub in memory: the routes that huggingface_hub's client calls, on a port of this machine."""

import base64
import hashlib
import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlparse

TOKEN, USER = "hf_testtokentesttoken", "tester"
LFS = (".safetensors", ".mp4")


class Repo:
    """One repository: its present files, its commits, and the files of each; it begins as the Hub makes it."""

    def __init__(self, private=False):
        self.private, self.files, self.commits, self.revisions = private, {}, [], {}
        self.commit({".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"})

    def commit(self, files, deleted=()):
        self.files = {name: data for name, data in self.files.items() if name not in deleted} | files
        self.commits.append(hashlib.sha1(repr((len(self.commits), sorted(self.files.items()))).encode()).hexdigest())
        self.revisions[self.commits[-1]] = self.revisions["main"] = self.files
        return self.commits[-1]


class FakeHub(ThreadingHTTPServer):
    """`fail` maps a fragment of a path to the HTTP statuses of its next answers, `odd` one to a function that answers;
    `log` is every request."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answers)
        self.repos, self.log, self.fail, self.odd = {}, [], {}, {}
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def repo(self, name, files, private=False):
        """A repository with these files, made by somebody else."""
        self.repos[name] = Repo(private)
        self.repos[name].commit(files)
        return self.repos[name]

    def handle_error(self, request, client_address):
        """A client may hang up in the middle of an answer; anything else is printed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def count(self, fragment):
        return sum(fragment in path for _, path in self.log)


def entry(name, data):
    """A file as the tree route tells it."""
    result = {"type": "file", "path": name, "size": len(data)}
    if not name.endswith(LFS):
        return {**result, "oid": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}
    lfs = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return {**result, "oid": hashlib.sha1(name.encode()).hexdigest(), "lfs": lfs}


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle_any(self):
        body, path = self.body(), unquote(urlparse(self.path).path)
        self.server.log.append((self.command, path))
        for fragment, statuses in self.server.fail.items():
            if fragment in path and statuses:
                return self.send({"error": "planted"}, statuses.pop(0))
        for fragment, answer in self.server.odd.items():
            if fragment in path:
                return answer(self)
        self.authorized = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if path == "/api/whoami-v2":
            return self.send({"type": "user", "name": USER, "orgs": []}) if self.authorized else self.unknown_token()
        if path == "/api/repos/create":
            return self.create(json.loads(body))
        if path == "/api/validate-yaml":
            return self.send({"errors": [], "warnings": []})
        match = re.match(r"^/(api/models/)?([^/]+/[^/]+)/?(.*)$", path)
        repo = self.server.repos.get(match[2]) if match else None
        if repo is None or (repo.private and not self.authorized):
            return self.send({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        word, _, rest = match[3].partition("/")
        return getattr(self, f"on_{word}")(match[2], repo, rest, body)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = handle_any  # noqa: N815

    def create(self, asked):
        if not self.authorized:
            return self.unknown_token()
        name = f"{asked.get('organization') or USER}/{asked['name']}"
        if name in self.server.repos:
            return self.send({"url": f"{self.server.url}/{name}"}, 409, {"X-Error-Message": "exists already"})
        self.server.repos[name] = Repo(asked.get("private") or asked.get("visibility") == "private")
        return self.send({"url": f"{self.server.url}/{name}", "name": name, "id": name})

    def on_(self, name, repo, rest, body):
        return self.on_revision(name, repo, "main", body)

    def on_revision(self, name, repo, rest, body):
        if rest not in repo.revisions:
            return self.send({"error": "no revision"}, 404, {"X-Error-Code": "RevisionNotFound"})
        commit = repo.commits[-1] if rest == "main" else rest
        siblings = [{"rfilename": file} for file in sorted(repo.revisions[rest])]
        about = {"_id": "x", "id": name, "modelId": name, "sha": commit, "private": repo.private, "tags": []}
        return self.send({**about, "siblings": siblings, "createdAt": "2026-01-01T00:00:00.000Z"})

    def on_tree(self, name, repo, rest, body):
        return self.send([entry(file, data) for file, data in sorted(repo.revisions[rest].items())])

    def on_preupload(self, name, repo, rest, body):
        fixed = {"uploadMode": "regular", "shouldIgnore": False, "oid": None}
        return self.send({"files": [{"path": file["path"], **fixed} for file in json.loads(body)["files"]]})

    def on_commit(self, name, repo, rest, body):
        if not self.authorized:
            return self.unknown_token()
        lines = [json.loads(line) for line in body.splitlines()]
        files = {x["value"]["path"]: base64.b64decode(x["value"]["content"]) for x in lines if x["key"] == "file"}
        commit = repo.commit(files, [x["value"]["path"] for x in lines if x["key"] == "deletedFile"])
        url = f"{self.server.url}/{name}/commit/{commit}"
        return self.send({"success": True, "commitOid": commit, "commitUrl": url})

    def on_resolve(self, name, repo, rest, body):
        revision, _, file = rest.partition("/")
        commit = {"X-Repo-Commit": repo.commits[-1] if revision == "main" else revision}
        data = repo.revisions[revision].get(file)
        if data is None:
            return self.send({"error": "no entry"}, 404, {"X-Error-Code": "EntryNotFound", **commit})
        return self.send(data, 200, {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', **commit})

    def unknown_token(self):
        words = "Invalid credentials in Authorization header"
        self.send({"error": words}, 401, {"X-Error-Message": words})

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while size := int(self.rfile.readline().strip() or b"0", 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def send(self, answer, status=200, headers=None):
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
