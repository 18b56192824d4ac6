# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether schema, reference and importer agree on which specs are legal."""

from __future__ import annotations

import json
import re

import jsonschema
from runs import ROOT
from verdicts import Verdict, compile_model

from moec.reference import LayerSpec, SpecError

SCHEMA = json.loads((ROOT / "docs" / "spec.schema.json").read_text())
_VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def judge_readers(model: dict, legal: bool = False) -> Verdict:
    """Whether schema, reference and importer agree on legality.

    The schema has no relations between numbers, so the others may refuse specs that it accepts.
    """
    try:
        LayerSpec.from_json(model)
        reference = ""
    except SpecError as error:
        reference = str(error)
    done = compile_model(model, "--emit=moe")
    if done.returncode not in (0, 1):
        return Verdict("crash", f"moe-compile --emit=moe exits {done.returncode}\n{done.stdout}")
    if done.returncode == 1 and not re.search(r"error: .", done.stdout):
        return Verdict("error", f"moe-compile --emit=moe says nothing\n{done.stdout}")
    importer = "" if done.returncode == 0 else done.stdout
    schema = "\n".join(error.message for error in _VALIDATOR.iter_errors(model))
    if bool(reference) == bool(importer) and (reference or not schema) and not (legal and reference):
        return Verdict("ok")
    said = {"reference": reference, "importer": importer, "schema": schema}
    return Verdict("readers", "\n".join(f"{name}: {text or 'legal'}" for name, text in said.items()))
