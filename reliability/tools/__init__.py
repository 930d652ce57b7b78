"""Tool calls: from what a model wrote to calls that may be delivered, or to every reason why not.

    build_toolbox     the request's tools, compiled           ToolBox | BadTools
    compile_schema    one schema, compiled                     Compiled | BadSchema
    extract_calls     the calls in a text                      Extraction
    check_calls       the verdict on all calls of an answer    Checked
    corrective_message, next_reask                             how to ask again

Everything here is pure and total: the same input gives the same answer, hostile input gives a verdict, and
nothing is fetched, timed or drawn. An invalid call is never delivered, a valid one is never changed, and
what is changed is recorded.
"""

from reliability.tool_calls import Checked, Extraction, Flaws, Malformed, RawCall, Repair, RepairKind, Violation
from reliability.tools.check.calls import CheckConfig, check_calls, id_source, ids_in
from reliability.tools.check.choice import Choice, parse_choice
from reliability.tools.check.complaints import corrective_message
from reliability.tools.check.placeholder_forms import PLACEHOLDERS
from reliability.tools.extract.scanner import extract_calls
from reliability.tools.schema.compiled import Compiled, compile_schema, keep
from reliability.tools.schema.dialects import BadSchema
from reliability.tools.schema.toolbox import BadTools, Tool, ToolBox, build_toolbox

__all__ = [
    "PLACEHOLDERS",
    "BadSchema",
    "BadTools",
    "CheckConfig",
    "Checked",
    "Choice",
    "Compiled",
    "Extraction",
    "Flaws",
    "Malformed",
    "RawCall",
    "Repair",
    "RepairKind",
    "Tool",
    "ToolBox",
    "Violation",
    "build_toolbox",
    "check_calls",
    "compile_schema",
    "corrective_message",
    "extract_calls",
    "id_source",
    "ids_in",
    "keep",
    "parse_choice",
]
