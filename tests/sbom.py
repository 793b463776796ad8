"""Checks a bill of materials against the schema of CycloneDX: `sbom.py FILE`."""

import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

sys.exit(JsonStrictValidator(SchemaVersion.V1_5).validate_str(Path(sys.argv[1]).read_text()))
