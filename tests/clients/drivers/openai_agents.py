"""Do the job with the OpenAI Agents SDK: `python openai_agents.py TASK WIRE`, where WIRE is `chat` or `responses`."""

# mypy: ignore-errors
import job_tools
from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled

TOOLS = [function_tool(function) for function in job_tools.FUNCTIONS.values()]


def main(task: str, wire: str) -> str:
    """Let an agent work; tracing goes to OpenAI, so it is off."""
    set_tracing_disabled(True)
    if wire == "chat":
        set_default_openai_api("chat_completions")
    agent = Agent(name="worker", instructions="You work on files.", model="fast", tools=TOOLS)
    return Runner.run_sync(agent, task, max_turns=job_tools.TURNS_MAX).final_output


job_tools.run(main)
