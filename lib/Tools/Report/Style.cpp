//===- Style.cpp - style sheet and script -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Style.h"

using llvm::StringLiteral;

const StringLiteral moec::report::kStyle = R"css(
:root { --ink: #1b2330; --soft: #5b6675; --line: #d5dbe3; --paper: #fff;
  --panel: #f5f7fa; --mark: #ffe9a8;
  --product: #cfe2ff; --routing: #ffe2bf; --combine: #cdeed3; --rows: #e6d9f7;
  --slot: #dfe5ec; --s0: #1f6feb; --s1: #d1242f; --s2: #1a7f37; --s3: #9a6700;
  --s4: #8250df; --s5: #0a7ea4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e8ef; --soft: #9aa6b5;
  --line: #38414f; --paper: #12161c; --panel: #1a2028; --mark: #5c4a12;
  --product: #1d3a63; --routing: #5a3a14; --combine: #1c4a2a; --rows: #43305f;
  --slot: #2c3541; --s0: #6cb0ff; --s1: #ff7b7b; --s2: #58c777; --s3: #e0a93b;
  --s4: #b794f6; --s5: #4cc3e6; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 20px 28px 120px; max-width: 1360px;
  background: var(--paper); color: var(--ink);
  font: 14px/1.45 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: 23px; margin: 0 0 2px; }
h2 { font-size: 17px; margin: 34px 0 8px; padding-bottom: 4px;
  border-bottom: 1px solid var(--line); }
h3 { font-size: 14px; margin: 16px 0 4px; }
p { margin: 4px 0 10px; } .caption, .sub { color: var(--soft); }
nav a { margin-right: 16px; } a { color: var(--s0); text-decoration: none; }
pre { font: 12px/1.45 ui-monospace, "DejaVu Sans Mono", Menlo, monospace;
  margin: 0; }
.words { white-space: pre-wrap; margin-bottom: 10px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 12.5px; margin: 4px 0 10px; }
th { text-align: left; font-weight: 600; color: var(--soft);
  border-bottom: 1px solid var(--line); padding: 3px 12px 3px 0; }
td { padding: 3px 12px 3px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; font-variant-numeric: tabular-nums; }
td.number { text-align: right; white-space: nowrap; }
details > summary { cursor: pointer; padding: 4px 0; }
.level { border: 1px solid var(--line); border-radius: 4px; margin: 6px 0;
  padding: 0 10px; background: var(--panel); }
.level .count { color: var(--soft); margin-left: 12px; font-size: 12px; }
.ir { overflow: auto; max-height: 640px; padding: 6px 0 10px;
  counter-reset: line; }
.ir .l { display: block; white-space: pre; width: max-content;
  min-width: 100%; }
.ir .l::before { counter-increment: line; content: counter(line);
  display: inline-block; width: 44px; padding-right: 12px; text-align: right;
  color: var(--soft); }
.told { white-space: pre-wrap; background: var(--panel); padding: 8px 12px;
  border-radius: 4px; }
[data-keys] { cursor: pointer; }
.ir .hit, tr.hit td { background: var(--mark); }
svg { display: block; width: 100%; height: auto; margin: 4px 0; }
svg text { fill: var(--ink); font: 11px system-ui, "Segoe UI", Helvetica, Arial,
  sans-serif; pointer-events: none; }
svg .title { font-weight: 600; font-size: 12.5px; }
svg .axis { fill: var(--soft); } svg .middle { text-anchor: middle; }
svg .end { text-anchor: end; }
svg rect { stroke: var(--soft); stroke-width: 0.7; }
rect.plain { fill: var(--paper); }
rect.absent { fill: none; stroke-dasharray: 4 3; }
rect.product { fill: var(--product); } rect.routing { fill: var(--routing); }
rect.combine { fill: var(--combine); } rect.rows { fill: var(--rows); }
rect.slot { fill: var(--slot); stroke: none; }
svg .hit { stroke: var(--s1); stroke-width: 2; }
.arrow { fill: none; stroke: var(--soft); stroke-width: 1.2; }
.head { fill: var(--soft); }
.grid { stroke: var(--line); stroke-width: 0.8; }
.axisline, .roof { stroke: var(--soft); stroke-width: 1.4; fill: none; }
.path { fill: none; stroke-width: 1.2; opacity: 0.55; }
.series0 { --c: var(--s0); } .series1 { --c: var(--s1); }
.series2 { --c: var(--s2); } .series3 { --c: var(--s3); }
.series4 { --c: var(--s4); } .series5 { --c: var(--s5); }
.path { stroke: var(--c); } .expected { fill: var(--c); }
.measured { fill: var(--paper); stroke: var(--c); stroke-width: 2.2; }
.legend span { display: inline-block; width: 12px; height: 12px;
  border: 1px solid var(--soft); border-radius: 2px; margin: 0 5px 0 14px;
  vertical-align: -1px; }
.product-key { background: var(--product); }
.routing-key { background: var(--routing); }
.combine-key { background: var(--combine); }
.rows-key { background: var(--rows); }
#ranges { position: sticky; top: 0; background: var(--paper); padding: 6px 0;
  z-index: 1; }
#ranges button { font: inherit; font-size: 13px; margin: 0 4px 4px 0;
  padding: 3px 10px; border: 1px solid var(--line); border-radius: 12px;
  background: var(--panel); color: var(--ink); cursor: pointer; }
#ranges button.on { background: var(--s0); color: var(--paper); }
.range.off { display: none; }
#links { position: fixed; left: 0; right: 0; bottom: 0; padding: 7px 28px;
  background: var(--panel); border-top: 1px solid var(--line); display: none;
  max-height: 30vh; overflow: auto; font-size: 13px; z-index: 2; }
#links.on { display: block; } #links a { margin-left: 10px; }
)css";

const StringLiteral moec::report::kScript = R"js(
"use strict";
const all = (query, root = document) => [...root.querySelectorAll(query)];
const keysOf = (node) => (node.dataset.keys || "").split(" ").filter(Boolean);
const links = document.getElementById("links");

function goTo(id) {
  const line = document.getElementById(id);
  if (!line) return;
  const level = line.closest("details.level");
  if (level) level.open = true;
  line.scrollIntoView({block: "center"});
}

// Shows the parts that have a name in common with the one that was chosen.
function choose(node) {
  const keys = new Set(keysOf(node));
  all(".hit").forEach((other) => other.classList.remove("hit"));
  links.replaceChildren();
  if (!keys.size) return;
  const title = document.createElement("b");
  title.textContent = [...keys].join(", ");
  links.append(title);
  const where = new Map();
  for (const other of all("[data-keys]")) {
    if (!keysOf(other).some((key) => keys.has(key))) continue;
    other.classList.add("hit");
    const place = /^([a-z]+)-(\d+)$/.exec(other.id);
    if (place) where.set(place[1], [...(where.get(place[1]) || []), place[2]]);
  }
  const add = (text, id) => {
    const link = document.createElement("a");
    link.href = "#" + id;
    link.textContent = text;
    links.append(link);
  };
  for (const [level, lines] of where)
    lines.slice(0, 24).forEach((line, i) =>
      add(i ? line : level + ": " + line, level + "-" + line));
  for (const pre of all("[data-code]"))
    if (pre.dataset.code && [...keys].some((key) => key[0] == "@"))
      add(pre.parentNode.id.slice(6) + ": open", pre.parentNode.id);
  links.classList.add("on");
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  if (link) {
    event.preventDefault();
    const id = link.getAttribute("href").slice(1);
    goTo(id);
    const line = document.getElementById(id);
    if (line && line.classList.contains("l") && !links.contains(link))
      choose(line);
    return;
  }
  const node = event.target.closest("[data-keys]");
  if (node) choose(node);
  else if (!links.contains(event.target)) {
    all(".hit").forEach((other) => other.classList.remove("hit"));
    links.classList.remove("on");
  }
});

// Code of kernels is unpacked when it is opened. The lines of a kernel's PTX
// have the location of their line at level tile.
async function unpack(pre) {
  const bytes = Uint8Array.from(atob(pre.dataset.code), (c) => c.charCodeAt(0));
  let stream = new Blob([bytes]).stream();
  if (pre.dataset.encoding != "identity")
    stream = stream.pipeThrough(new DecompressionStream(pre.dataset.encoding));
  const text = await new Response(stream).text();
  pre.dataset.code = "";
  const level = pre.parentNode.id;
  let plain = [];
  const flush = () => {
    pre.append(plain.join(""));
    plain = [];
  };
  text.split("\n").forEach((line, i) => {
    const loc = /^\s*\.loc\s+1\s+([1-9]\d*)\s/.exec(line);
    const kernel = /^(?:\.visible \.entry |define .*@)"?([^"(]+)"?\(/.exec(line);
    if (!loc && !kernel) return plain.push(line + "\n");
    flush();
    const node = document.createElement(loc ? "a" : "b");
    node.textContent = line + "\n";
    if (loc) node.href = "#tile-" + loc[1];
    if (kernel) {
      node.id = level.slice(6) + "-" + (i + 1);
      node.dataset.keys = "@" + kernel[1];
    }
    pre.append(node);
  });
  flush();
}
for (const pre of all("pre[data-code]"))
  pre.parentNode.addEventListener("toggle", () => {
    if (pre.parentNode.open && pre.dataset.code) unpack(pre);
  });

const ranges = all(".range");
const bar = document.getElementById("ranges");
function show(index) {
  ranges.forEach((range, i) => range.classList.toggle("off", i != index));
  all("button", bar).forEach((b, i) => b.classList.toggle("on", i == index));
}
if (ranges.length > 1) {
  ranges.forEach((range, i) => {
    const button = document.createElement("button");
    button.textContent = range.dataset.tokens;
    button.addEventListener("click", () => show(i));
    bar.append(button);
  });
  show(ranges.length - 1);
}
)js";
