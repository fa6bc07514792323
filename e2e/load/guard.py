"""Load goes only where it cannot hurt anybody."""

import ipaddress
import socket
from urllib.parse import urlsplit

ALLOWED = (
    ipaddress.ip_network("127.0.0.0/8"),
    ipaddress.ip_network("::1/128"),
    ipaddress.ip_network("198.18.0.0/15"),  # RFC 2544, reserved for benchmarks
)


def check_address(url: str) -> None:
    """Raises ValueError unless every address of the URL's host is loopback or in 198.18.0.0/15."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"target {url!r}: not an http(s) URL with a host")
    try:
        found = socket.getaddrinfo(parts.hostname, None, proto=socket.IPPROTO_TCP)
    except OSError as error:
        raise ValueError(f"target {url!r}: {error}") from error
    for address in {ipaddress.ip_address(entry[4][0]) for entry in found}:
        if not any(address in network for network in ALLOWED):
            raise ValueError(
                f"target {url!r} is {address}: load goes only to loopback and 198.18.0.0/15; "
                "pass --any-address if the machine there is yours"
            )
