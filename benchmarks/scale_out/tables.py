# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A record as tables in Markdown."""

from __future__ import annotations


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(header, *rows)] if rows else [len(name) for name in header]
    lines = [header, ["-" * width for width in widths], *rows]
    return ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines]


def time_of(row: dict, name: str, with_p99: bool = True) -> str:
    if name not in row:
        return ""
    text = f"{row[name]['us']:.1f}"
    return f"{text} ({row[name]['p99_us']:.1f})" if with_p99 else text


#: Columns of correctness, if records have them.
RIGHT = {"ranks": "ranks", "engine": "rows by", "feature": "feature", "mesh": "mesh", "format": "format",
         "runs": "runs", "seconds": "s"}


def correctness(rows: list[dict]) -> list[str]:
    names = [name for name in RIGHT if any(name in row for row in rows)]
    return table([*(RIGHT[name] for name in names), "largest error", ""], [
        [*(str(row.get(name, "")) for name in names), f"{max(row['errors']):.1e}" if row.get("errors") else "",
         "ok" if row["ok"] else row.get("error", "failed")] for row in rows])


#: Columns of the exchange, those of the second engine only where it ran.
EXCHANGE = {
    "dispatch": "dispatch us (p99)", "combine": "combine us", "peer_dispatch": "peer: dispatch",
    "peer_combine": "peer: combine", "peer_sums": "peer: sums alone",
    "peer_quantization": "peer: quantization alone",
    "peer_copy_dispatch": "copies of dispatch's bytes", "peer_copy_combine": "copies of combine's bytes",
    "gather_bytes": "NCCL: gather of the bytes",
    "blocks_dispatch": "all-to-all, dispatch", "blocks_combine": "all-to-all, combine",
}


def describe_target(row: dict, name: str) -> str:
    met = row.get("within_target", {}).get(name)
    return "" if met is None else "met" if met else "missed"


def shared_exchange(rows: list[dict]) -> list[str]:
    """For ranks that share a GPU: dispatch and combine beside copies of the same bytes."""
    lines = []
    # Quantized layers without a shared expert gather quantized values.
    alone = ["sums", *(["quantization"] if any("peer_quantization" in row for row in rows) else [])]
    for row in rows:
        line = [str(row["ranks"]), row["rows_by"],
                str(row["tokens_per_rank"]) if "error" not in row else row["error"]]
        for name in ("dispatch", "combine"):
            here, copy = row.get(f"peer_{name}"), row.get(f"peer_copy_{name}")
            line += [time_of(row, f"peer_{name}"), time_of(row, f"peer_copy_{name}")]
            line += ["", ""] if not here or not copy else [f"{here['us'] - copy['us']:+.1f}",
                                                           f"{here['us'] / copy['us']:.2f}"]
            line.append(describe_target(row, name))
        lines.append([*line, *(time_of(row, f"peer_{name}", False) for name in alone)])
    of_each = [header for name in ("dispatch", "combine")
               for header in (f"{name} us (p99)", "copies of its bytes", "more us", "ratio", "target")]
    return table(["ranks of the GPU", "rows by", "tokens per rank", *of_each, *(f"{name} alone" for name in alone)], lines)


def exchange(rows: list[dict]) -> list[str]:
    if any("ranks_per_gpu" in row for row in rows):
        return shared_exchange(rows)
    names = [name for name in EXCHANGE if not name.startswith("peer") or any(name in row for row in rows)]
    return table(
        ["ranks", "tokens per rank", *(EXCHANGE[name] for name in names)],
        [[str(row["ranks"]), str(row["tokens_per_rank"]) if "error" not in row else row["error"],
          *(time_of(row, name) for name in names)] for row in rows])


def all_to_all(rows: list[dict]) -> list[str]:
    return table(["layer", "ranks", "rows by", "tokens per rank", "dispatch us (p99)", "combine us (p99)"], [
        [row["layer"], str(row["ranks"]), row["rows_by"],
         str(row["tokens_per_rank"]) if "error" not in row else row["error"],
         time_of(row, "dispatch"), time_of(row, "combine")] for row in rows])


def hidden(row: dict) -> str:
    """The hidden share: of the shorter of compute and exchange, the part that does not add to the layer's time."""
    parts = [row[name]["us"] for name in ("compute", "exchange", "together")]
    return f"{max(0.0, (parts[0] + parts[1] - parts[2]) / min(parts[:2])):.0%}" if min(parts[:2]) > 0 else ""


def layers(rows: list[dict]) -> list[str]:
    lines = []
    for row in rows:
        line = [row["layer"], str(row["ranks"]), str(row["tokens_per_rank"])]
        if "together" not in row:
            lines.append([*line, row.get("error", "failed"), "", "", "", "", ""])
            continue
        ratio = f"{row['one_gpu']['us'] / row['together']['us']:.2f}" if "one_gpu" in row else row.get("error", "")
        lines.append([*line, time_of(row, "together"), time_of(row, "compute", False), time_of(row, "exchange", False),
                      hidden(row), time_of(row, "one_gpu", False), ratio])
    return table(["layer", "ranks", "tokens per rank", "us (p99)", "compute alone", "exchange alone", "hidden",
                  "one GPU, all tokens", "ratio"], lines)


def drills(rows: list[dict]) -> list[str]:
    lines = []
    for row in rows:
        slowest = max((each["seconds"] for each in row["survivors"]), default=None)
        wrong = next((each["says"] for each in row["survivors"] if not each["ok"]), row.get("error", ""))
        said = row["survivors"][0]["says"] if row["survivors"] else ""
        lines.append([str(row["ranks"]), row["mode"], row["phase"], "" if slowest is None else f"{slowest:.1f}",
                      str(row["hangs"]), "ok" if row["ok"] else "FAILED", (wrong if not row["ok"] else said)[:150]])
    hangs = sum(row["hangs"] for row in rows)
    return [*table(["ranks", "a rank is", "in", "s until all know", "hangs", "", "what rank 0 says"], lines), "",
            f"{sum(row['ok'] for row in rows)} of {len(rows)} cells ok, {hangs} hangs, "
            f"{sum(row.get('shared_memory_left', 0) for row in rows)} segments of shared memory left"]


TABLES = {"correctness": correctness, "features": correctness, "exchange": exchange,
          "all-to-all": all_to_all, "layers": layers, "drills": drills}


def print_part(name: str, part: dict) -> str:
    lines = [f"## {name} ({part['seconds']:.0f} s)", "", *part["notes"], *([""] if part["notes"] else [])]
    return "\n".join([*lines, *(TABLES[name](part["rows"]) if part["rows"] else []), ""])
