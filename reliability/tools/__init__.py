"""Tool calls: from what a model wrote to calls that may be delivered, or to every reason why not.

    build_toolbox     the request's tools, compiled           ToolBox | BadTools
    compile_schema    one schema, compiled                     Compiled | BadSchema
    extract           the calls in a text                      Extraction
    check_calls       the verdict on all calls of an answer    Checked
    corrective_message, next_reask                             how to ask again

Everything here is pure and total: the same input gives the same answer, hostile input gives a verdict, and
nothing is fetched, timed or drawn. An invalid call is never delivered, a valid one is never changed, and
what is changed is recorded.
"""

from reliability.tools.check import CheckConfig, check_calls
from reliability.tools.choice import Choice, parse_choice
from reliability.tools.compiled import Compiled, compile_schema, keep
from reliability.tools.correct import corrective_message
from reliability.tools.extract import extract
from reliability.tools.ids import id_source, ids_in
from reliability.tools.plausible import PLACEHOLDERS
from reliability.tools.schema import BadSchema
from reliability.tools.toolbox import BadTools, Tool, ToolBox, build_toolbox
from reliability.tools.verdicts import (
    Checked,
    Extraction,
    Flaws,
    Malformed,
    RawCall,
    Repair,
    RepairKind,
    Violation,
)

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
    "extract",
    "id_source",
    "ids_in",
    "keep",
    "parse_choice",
]
