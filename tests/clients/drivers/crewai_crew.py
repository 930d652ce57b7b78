"""Do the job with CrewAI: `python crewai_crew.py TASK`."""

# mypy: ignore-errors
import os

import job_tools
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

TOOLS = [tool(function) for function in job_tools.FUNCTIONS.values()]


def main(task: str) -> str:
    llm = LLM(model="openai/fast", base_url=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
    worker = Agent(role="worker", goal="do the task", backstory="a clerk", llm=llm, tools=TOOLS)
    work = Task(description=task, expected_output="what was done", agent=worker)
    return str(Crew(agents=[worker], tasks=[work]).kickoff())


job_tools.run(main)
