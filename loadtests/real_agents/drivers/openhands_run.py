"""Run OpenHands' default agent on a task: `python openhands_run.py TASK`, in the venv of OpenHands."""

# mypy: ignore-errors
from __future__ import annotations

import os
import sys

from openhands.sdk import LLM, Conversation
from openhands.tools.preset.default import get_default_agent
from pydantic import SecretStr


def main() -> None:
    """Work in the current folder until the agent ends."""
    base_url, key = os.environ["OPENAI_BASE_URL"], SecretStr(os.environ["OPENAI_API_KEY"])
    llm = LLM(model="openai/fast", base_url=base_url, api_key=key)
    conversation = Conversation(agent=get_default_agent(llm=llm, cli_mode=True), workspace=os.getcwd())
    conversation.send_message(sys.argv[1])
    conversation.run()


main()
