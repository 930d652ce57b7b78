"""Do the job with Pydantic AI: `python pydantic_ai_agent.py TASK`."""

# mypy: ignore-errors
import job_tools
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel


def main(task: str) -> str:
    agent = Agent(OpenAIChatModel("fast"), tools=list(job_tools.FUNCTIONS.values()))
    return agent.run_sync(task).output


job_tools.run(main)
