"""An HTTP server with vLLM's completions API, whose log-probs come from a real policy, and which fails on demand."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from transformers import LlamaForCausalLM


class CompletionsServer(ThreadingHTTPServer):
    """``faults`` maps a path to what goes wrong with its next requests, one each; ``bodies`` keeps what arrived."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.policy, self.faults, self.bodies, self.paths = None, {}, [], []
        self.lock = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        """A client that hung up is no news."""

    def next_fault(self, path):
        with self.lock:
            faults = self.faults.get(path, [])
            return faults.pop(0) if faults else None

    def answer(self, path, body):
        if path == "/collective_rpc":
            assert body["method"] == "reload_weights"
            self.policy = LlamaForCausalLM.from_pretrained(body["kwargs"]["weights_path"]).eval()
            return {"results": [None]}
        return {"choices": [self.complete(body)]} if path == "/v1/completions" else {"success": True}

    @torch.no_grad()
    def complete(self, body):
        stream, token_ids, log_probs = torch.Generator().manual_seed(body["seed"]), [], []
        while len(token_ids) < body["max_tokens"] and token_ids[-1:] != body["stop_token_ids"]:
            logits = self.policy(torch.tensor([[*body["prompt"], *token_ids]])).logits[0, -1].double()
            scores = (logits / body["temperature"]).log_softmax(-1)
            token_ids.append(int(torch.multinomial(scores.exp(), 1, generator=stream)))
            log_probs.append(float(scores[token_ids[-1]]))
        return {"token_ids": token_ids, "logprobs": {"token_logprobs": log_probs}, "text": ""}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.bodies.append(body)
            self.server.paths.append(self.path)
        fault = self.server.next_fault(self.path)
        if isinstance(fault, int):
            return self.send(fault, b'{"error": "as asked for"}')
        if fault == "hang":
            return time.sleep(3)
        if fault == "hang up":
            return self.connection.close()
        if callable(fault):
            return self.send(200, fault(self.server.answer(self.path, body)))
        return self.send(200, json.dumps(self.server.answer(self.path, body)).encode())

    def send(self, status, content, length=None):
        self.send_response(status)
        self.send_header("Content-Length", str(length or len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        """Silence."""


@contextmanager
def completions_server():
    server = CompletionsServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
