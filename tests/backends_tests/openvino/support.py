"""What the tests of the OpenVINO backend share."""

from __future__ import annotations

from tests.backends_tests.whole_regions.regions import Regions

REGIONS = Regions("openvino")
installed = REGIONS.installed
backend = REGIONS.backend
target = REGIONS.target
partitioned = REGIONS.partitioned
is_taken_whole = REGIONS.is_taken_whole
