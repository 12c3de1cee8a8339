"""Write the page of names: `python -m tape_tf > docs/tensorflow-names.md`."""

import sys

from tape_tf.names_page import page

sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
sys.stdout.write(page())
