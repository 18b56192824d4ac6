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
