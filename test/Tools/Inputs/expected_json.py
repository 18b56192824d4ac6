"""expected_json.py TIMES.json EXPLAINED.txt: the times of --explain=json are those of --explain=all."""

import json
import re
import sys

data = json.load(open(sys.argv[1]))
first, second = data["times"]
assert (data["target"], data["gpu"], data["ranks"]) == ("sm_90a", "h200", 1), data
assert (first["tokens"], second["tokens"]) == (1, 8)
# The first range of tokens is 0 to 8, and its table has the times of both ends.
table = open(sys.argv[2]).read().split("expected on an H200")[1].split("in sequence")
rows = [line.split() for line in table[0].splitlines()[2:] if line.strip()]
assert [row[0] for row in rows] == [step["name"] for step in first["steps"]], rows
totals = re.findall(r"([0-9.]+) / +([0-9.]+)", table[1].splitlines()[0])
for time, (us, floor) in zip(data["times"], totals, strict=True):
    assert abs(time["us"] - float(us)) < 0.06 and abs(time["floor_us"] - float(floor)) < 0.06, (time, us, floor)
    assert abs(sum(step["us"] for step in time["steps"]) - time["us"]) < 1e-6
    assert sum(step["bytes"] for step in time["steps"]) == time["bytes"] > 0
    assert time["bound"] == "memory" and time["exchange_us"] == 0 and time["workspace_bytes"] > 0
# 256 experts of 3 x 7168 x 2048 elements of one byte, and their scales.
experts = 256 * 3 * 7168 * 2048
assert experts < data["weight_bytes"] == data["resident_bytes"] < 1.01 * experts, data["weight_bytes"]
