"""Shards of a GoogleTest program run at once: each has a folder of its own for files that tests write."""

import tempfile

from lit.formats import GoogleTest


class Shards(GoogleTest):
    def execute(self, test, lit_config):
        with tempfile.TemporaryDirectory() as folder:
            test.config.environment |= {"TMPDIR": folder, "TEST_TMPDIR": folder}
            return super().execute(test, lit_config)
