"""Tool calls: from what a model wrote to calls that may be delivered, or to every reason why not.

Pure and total: the same input gives the same answer, hostile input gives a verdict, and nothing is fetched or timed. An
invalid call is never delivered, a valid one is never changed, and what is changed is recorded.
"""

from reliability.tool_calls import Checked, Extraction, Flaws, Malformed, RawCall, Repair, RepairKind, Violation
from reliability.tools.check.calls import CheckConfig, check_calls, id_source, parse_choice
from reliability.tools.check.complaints import corrective_message
from reliability.tools.check.placeholder_forms import PLACEHOLDERS
from reliability.tools.extract.scanner import extract_calls
from reliability.tools.schema.compiled import Compiled, compile_schema, keep
from reliability.tools.schema.dialects import BadSchema
from reliability.tools.schema.toolbox import BadTools, Tool, ToolBox, build_toolbox

__all__ = [
    "PLACEHOLDERS", "BadSchema", "BadTools", "CheckConfig", "Checked", "Compiled", "Extraction",
    "Flaws", "Malformed", "RawCall", "Repair", "RepairKind", "Tool", "ToolBox", "Violation", "build_toolbox",
    "check_calls", "compile_schema", "corrective_message", "extract_calls", "id_source", "keep",
    "parse_choice",
]  # fmt: skip
