"""A POST of JSON that is sent again a bounded number of times, and says what failed when it gives up."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PASSING = (408, 425, 429, 500, 502, 503, 504)
"""Status codes that another attempt may cure; the others say that the request itself is wrong."""


class RequestError(RuntimeError):
    """A server refused a request, or did not answer it.

    Args:
        message: What was asked, how often, and what came back.
        status: HTTP status of the last answer; ``None`` if there was none.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Retries:
    """How long a request is tried.

    Args:
        attempts: Times that it is sent, the first included.
        timeout: Seconds to wait for an answer, each time.
        pause: Seconds before the second attempt; twice as many before each further one.

    Raises:
        ValueError: A value is out of range.
    """

    attempts: int = 4
    timeout: float = 120.0
    pause: float = 1.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts = {self.attempts} is not allowed; allowed: a whole number from 1 up")
        if self.timeout <= 0 or self.pause < 0:
            raise ValueError(
                f"timeout = {self.timeout} and pause = {self.pause}; allowed: a timeout above 0, a pause of 0 or more"
            )


def post_json(url: str, body: Mapping[str, Any], retries: Retries) -> Any:
    """Send JSON and read JSON.

    A connection that fails, a timeout, an answer that is cut off or no JSON, and a status in :data:`PASSING` are tried
    again; the request must mean the same when it arrives twice.

    Args:
        url: Address.
        body: What to send.
        retries: How long to try.

    Returns:
        What the server answered, ``None`` for an empty answer.

    Raises:
        RequestError: The last attempt failed, or the server said that the request is wrong.
    """
    failure = RequestError("not sent")
    for attempt in range(retries.attempts):
        if attempt:
            time.sleep(retries.pause * 2 ** (attempt - 1))
        try:
            return _post(url, body, retries.timeout)
        except RequestError as error:
            failure = error
            if error.status is not None and error.status not in PASSING:
                raise
    raise RequestError(f"gave up after {retries.attempts} attempts: {failure}", failure.status) from failure


def _post(url: str, body: Mapping[str, Any], timeout: float) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        # Rollout servers are near; a proxy for the outside world is not asked.
        with _DIRECT.open(request, timeout=timeout) as response:
            content = response.read()
            return json.loads(content) if content else None
    except urllib.error.HTTPError as error:
        answer = error.read(2000).decode(errors="replace")
        raise RequestError(f"POST {url} was answered with status {error.code}: {answer}", error.code) from error
    except TimeoutError as error:
        raise RequestError(f"POST {url} was not answered in {timeout:g} seconds") from error
    except (OSError, http.client.HTTPException) as error:
        raise RequestError(f"POST {url} failed: {getattr(error, 'reason', error)!r}") from error
    except ValueError as error:
        raise RequestError(f"POST {url} was answered with something that is no JSON: {content[:200]!r}") from error


_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
