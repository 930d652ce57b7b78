"""Do the job with LangChain's chat model in LangGraph's agent: `python langgraph_agent.py TASK`."""

# mypy: ignore-errors
import job_tools
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

TOOLS = [tool(function) for function in job_tools.FUNCTIONS.values()]


def main(task: str) -> str:
    agent = create_react_agent(ChatOpenAI(model="fast"), TOOLS)
    state = agent.invoke({"messages": [("user", task)]}, {"recursion_limit": 2 * job_tools.TURNS_MAX})
    return state["messages"][-1].content


job_tools.run(main)
