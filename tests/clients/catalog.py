"""The clients: which packages, which API, how they are started, and the two lines that a user sets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from loadtests.real_agents.agents import Launch
from tests.clients import launches
from tests.clients.launches import Place, launch_driver, launch_front, launch_node
from tests.clients.moves import MOVES, Moves

OPENAI = "`OPENAI_BASE_URL=URL/v1` `OPENAI_API_KEY=KEY`"
ANTHROPIC = "`ANTHROPIC_BASE_URL=URL` `ANTHROPIC_API_KEY=KEY`"
NO_TOOLS = "it declares no tools: its calls are text for this server"
CODEX = (
    'config.toml: `model_provider = "local"` `[model_providers.local]` `base_url = "URL/v1"` '
    '`env_key = "OPENAI_API_KEY"` `wire_api = "responses"`'
)
CHAT, MESSAGES, RESPONSES = "chat", "messages", "responses"


@dataclass(frozen=True, slots=True)
class Client:
    """One client.

    `packages`: what it is installed from; `lines`: what a user sets; `excused`: by scenario, or `faults`, why this
    client shows something else than is wanted; `behind`: the tiers are models of LiteLLM's proxy.
    """

    name: str
    packages: str
    wire: str
    build: Callable[[Place], Launch]
    lines: str
    moves: Moves = MOVES["driver"]
    style: str = "calls"
    excused: Mapping[str, str] = field(default_factory=dict)
    pythons: tuple[str, ...] = ("3.11", "3.12", "3.13")
    behind: bool = False


def _list_sdks() -> list[Client]:
    """List the packages that programs are written with, each with a driver."""
    return [
        Client("openai (Python), chat", "openai", CHAT, launch_driver("openai_chat"), OPENAI),
        Client("openai (Python), chat, streamed", "openai", CHAT, launch_driver("openai_chat", "stream"), OPENAI),
        Client("openai (Python), Responses", "openai", RESPONSES, launch_driver("openai_responses"), OPENAI),
        Client("openai (Python), Responses, streamed", "openai", RESPONSES,
               launch_driver("openai_responses", "stream"), OPENAI),
        Client("openai (Node), chat, streamed", "openai-node", CHAT, launch_node("openai_chat"), OPENAI),
        Client("anthropic (Python)", "anthropic", MESSAGES,
               launch_driver("anthropic_messages", env="ANTHROPIC", path=""), ANTHROPIC),
        Client("anthropic (Python), streamed", "anthropic", MESSAGES,
               launch_driver("anthropic_messages", "stream", env="ANTHROPIC", path=""), ANTHROPIC),
        Client("anthropic (Node), streamed", "anthropic-node", MESSAGES,
               launch_node("anthropic_messages", env="ANTHROPIC", path=""), ANTHROPIC),
        Client("openai-agents, chat", "openai-agents", CHAT, launch_driver("openai_agents", "chat"),
               OPENAI + " and `set_default_openai_api(\"chat_completions\")`"),
        Client("openai-agents, Responses", "openai-agents", RESPONSES, launch_driver("openai_agents", "responses"),
               OPENAI),
        Client("LiteLLM", "litellm", CHAT, launch_driver("litellm_sdk"), OPENAI + ", model `openai/fast`"),
        Client("LangGraph", "langgraph", CHAT, launch_driver("langgraph_agent"), OPENAI),
        Client("Pydantic AI", "pydantic-ai", CHAT, launch_driver("pydantic_ai_agent"), OPENAI),
        Client("CrewAI", "crewai", CHAT, launch_driver("crewai_crew"),
               "`LLM(model=\"openai/fast\", base_url=\"URL/v1\", api_key=\"KEY\")`",
               excused=dict.fromkeys(("loop", "budget"), "it begins its task three times")),
        Client("smolagents, ToolCallingAgent", "smolagents", CHAT, launch_driver("smolagents_agent", "tools"),
               "`OpenAIServerModel(\"fast\", api_base=\"URL/v1\", api_key=\"KEY\")`", MOVES["smolagents"]),
        Client("smolagents, CodeAgent", "smolagents", CHAT, launch_driver("smolagents_agent", "code"),
               "`OpenAIServerModel(\"fast\", api_base=\"URL/v1\", api_key=\"KEY\")`", MOVES["smolagents"], "code",
               {"faults": NO_TOOLS}),
        Client("instructor", "instructor", CHAT, launch_driver("instructor_steps"), OPENAI, MOVES["instructor"]),
    ]  # fmt: skip


def _list_agents() -> list[Client]:
    """List the programs that work by themselves."""
    return [
        Client("Claude Code", "claude-code", MESSAGES, launches.launch_claude_code,
               ANTHROPIC + ", `--model fast`", MOVES["claude-code"]),
        Client("Codex", "codex", RESPONSES, launches.launch_codex, CODEX + " `model = \"fast\"`", MOVES["codex"]),
        Client("Codex, model gpt-5.5 by an alias", "codex", RESPONSES, launches.launch_codex_as_known,
               CODEX + "; in serve_config.yaml `aliases: {gpt-5.5: fast}`", MOVES["codex"]),
        Client("qwen-code", "qwen-code", CHAT, launches.launch_qwen_code, OPENAI + " `OPENAI_MODEL=fast`",
               MOVES["qwen-code"], excused={"loop": "its own guard may come first, at the fifth equal call"}),
        Client("opencode", "opencode", CHAT, launches.launch_opencode,
               "opencode.json: a provider of `@ai-sdk/openai-compatible` with `baseURL: URL/v1` and `apiKey: KEY`",
               MOVES["opencode"]),
        Client("Continue", "continue", CHAT, launches.launch_continue,
               "config.yaml: `provider: openai` `apiBase: URL/v1` `apiKey: KEY`", MOVES["continue"]),
        Client("OpenHands SDK", "openhands", CHAT, launches.launch_openhands,
               "`LLM(model=\"openai/fast\", base_url=\"URL/v1\", api_key=\"KEY\")`", MOVES["openhands"],
               excused={"loop": "its own detector ends its work at the fourth repetition"}, pythons=("3.12", "3.13")),
        Client("Hermes", "hermes", CHAT, launches.launch_hermes,
               "config.yaml: `provider: custom` `base_url: URL/v1` `api_key: KEY`", MOVES["hermes"]),
        Client("aider", "aider", CHAT, launches.launch_aider,
               "`--openai-api-base URL/v1` `--openai-api-key KEY`, model `openai/fast`", style="edits",
               excused={"faults": "it has no tools, and writes edits as text",
                        "loop": "its LiteLLM makes None of a 422, on which it breaks with a traceback"},
               pythons=("3.11", "3.12")),
    ]  # fmt: skip


def _list_proxies() -> list[Client]:
    """List what stands between a client and the server, or between the server and the models."""
    known = "litellm_params: `model: {}/fast` `api_base: {}` `api_key: KEY`"
    openai, anthropic = known.format("openai", "URL/v1"), known.format("anthropic", "URL")
    return [
        Client("LiteLLM's proxy, chat", "litellm-proxy", CHAT, launch_front("openai_chat", "openai"), openai),
        Client("LiteLLM's proxy, Messages", "litellm-proxy", MESSAGES,
               launch_front("anthropic_messages", "anthropic"), anthropic),
        Client("LiteLLM's proxy, Responses", "litellm-proxy", RESPONSES,
               launch_front("openai_responses", "openai"), openai),
        Client("LiteLLM's proxy as the tiers behind", "litellm-proxy", CHAT, launch_driver("openai_chat", "stream"),
               "tiers: `kind: hosted` `base_url: PROXY/v1` `model: NAME`", behind=True),
    ]  # fmt: skip


CLIENTS = [*_list_sdks(), *_list_agents(), *_list_proxies()]
