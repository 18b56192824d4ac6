# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parses a report's page for tests: its sections, and errors in its HTML."""

from __future__ import annotations

import base64
import zlib
from collections import defaultdict
from html.parser import HTMLParser

VOID = {"meta"}
#: SVG elements that are self-closing here.
CLOSED = {"line", "polyline", "polygon"}


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.errors: list[str] = []
        self.open: list[tuple[str, dict[str, str]]] = []
        self.ids: dict[str, list[str]] = {}
        #: All text, by heading (h2).
        self.sections: dict[str, str] = defaultdict(str)
        #: Lines with names, by level: level -> [(line, names)].
        self.lines: dict[str, list[tuple[int, set[str]]]] = defaultdict(list)
        #: Unpacked code of kernels, by level.
        self.code: dict[str, str] = {}
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.ranges: list[str] = []
        self.section = ""
        self.feed(text)
        self.close()
        self.errors += [f"<{tag}> is not closed" for tag, _ in self.open]

    def handle_starttag(self, tag, attributes):
        named = {key: value or "" for key, value in attributes}
        self.tags.append((tag, named))
        if named.get("id") in self.ids:
            self.errors.append(f"two have the id {named['id']}")
        keys = named.get("data-keys", "").split()
        if "id" in named:
            self.ids[named["id"]] = keys
        if tag == "h2":
            self.section = named.get("id", "")
        if tag == "section":
            self.ranges.append(named["data-tokens"])
        if named.get("class") == "l":
            level, line = named["id"].split("-")
            self.lines[level].append((int(line), set(keys)))
        if named.get("data-code"):
            level = self.open[-1][1]["id"].removeprefix("level-")
            data = base64.b64decode(named["data-code"])
            self.code[level] = (
                zlib.decompress(data) if named["data-encoding"] == "deflate" else data
            ).decode()
        for name in ("src", "href", "xlink:href"):
            if named.get(name, "#")[0] != "#":
                self.errors.append(f"<{tag} {name}={named[name]}> is outside of the page")
        if tag not in VOID and tag not in CLOSED:
            self.open.append((tag, named))

    def handle_startendtag(self, tag, attributes):
        if tag not in CLOSED:
            self.errors.append(f"<{tag}/>")

    def handle_endtag(self, tag):
        if not self.open or self.open[-1][0] != tag:
            self.errors.append(f"</{tag}> after {[name for name, _ in self.open]}")
        else:
            self.open.pop()

    def handle_data(self, data):
        if not self.open or self.open[-1][0] not in ("script", "style"):
            self.sections[self.section] += data

    def drawings(self) -> list[str]:
        return [named["aria-label"] for tag, named in self.tags if tag == "svg"]

    def names(self, level: str) -> set[str]:
        """Returns all names on the lines of a level."""
        return set().union(*(names for _, names in self.lines[level]))
