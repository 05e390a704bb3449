"""The page: a tab per room, who is asked when something is chosen, and what is served to whom.

Rooms make escaped HTML of what they read; here it is only passed on. Nothing here writes into a run.
"""

import contextlib
import io
import os
import tempfile
from collections.abc import Callable
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_args

from agents.loading import LINKS, list_checkpoints, load_run
from agents.player import Mode
from envs_gym.drawn import RenderError
from envs_gym.gym_env import EnvError
from inspector.compare import compare
from inspector.episode import MOST_STEPS, player_markup, record_for_browser
from inspector.markup import Markup, card, join, note, safe
from inspector.model import config, model
from inspector.overview import overview
from inspector.runs import find_run, read_run, read_runs, runs_table
from inspector.videos import videos
from utils.run_dir import list_runs
from utils.user_error import UserError
from utils.video_file import VideoError

HERE = Path(__file__).parent
REFRESH = 2.0  # seconds
NOT_RECORDED = "record an episode, then scrub through it"
WELCOME = note("choose a run above, or in the table of runs")
QUIET = {"show_progress": "hidden", "api_visibility": "private"}
EXPECTED = (UserError, EnvError, RenderError, VideoError)
Given = ParamSpec("Given")
Made = TypeVar("Made")


def load_gradio() -> Any:
    """Gradio, told before it starts to call nobody, or the line that says how to get it."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    try:
        import gradio
    except ImportError as error:
        raise UserError("the inspector needs Gradio: pip install 'stride-rl[web]'") from error
    return gradio


class Inspector:
    """Owns the folder that is served: `with Inspector("@last") as inspector: inspector.launch(...)`."""

    def __init__(self, selector: str) -> None:
        self.gr = load_gradio()
        self.run_id = self._first(selector)
        self._stack = contextlib.ExitStack()
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="stride-inspect-"))).resolve()
        self.demo = self._build()

    def __enter__(self) -> "Inspector":
        return self

    def __exit__(self, *_: object) -> None:
        self.demo.close(verbose=False)
        self._stack.close()

    def _first(self, selector: str) -> str:
        """The run to begin with; without any run the page is empty, but there."""
        return find_run(selector).id if list_runs() or selector != "@last" else ""

    def launch(self, host: str, port: int | None, share: bool) -> str:
        """Serve from threads of its own; returns the address, the public one where it is shared."""
        theme = self.gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
        with contextlib.redirect_stdout(io.StringIO()):  # Gradio speaks in paragraphs
            _, url, public = self.demo.launch(
                server_name=host,
                server_port=port,
                share=share,
                allowed_paths=[str(self.folder)],
                theme=theme,
                css=_text("inspector.css"),
                head=f"<style>{_text('page.css')}</style><script>{_text('files.js')}{_text('episode.js')}</script>",
                footer_links=[],
                enable_monitoring=False,
                ssr_mode=False,
                pwa=False,
                mcp_server=False,
                quiet=True,
                prevent_thread_lock=True,
            )
        if share and not public:
            raise UserError("--share got no public address from Gradio's servers: is there a network?")
        return str(public or url)

    def _build(self) -> Any:
        gr = self.gr
        with gr.Blocks(title="Stride inspector", analytics_enabled=False) as demo:
            with gr.Row(equal_height=True):
                gr.HTML("<div id='title'><h1>Stride</h1><span>inspector</span></div>", scale=1)
                run = gr.Dropdown(_ids(), label="Run", value=self.run_id or None, allow_custom_value=True,
                                  elem_id="run", scale=3)  # fmt: skip
            # outside of the tabs: Gradio numbers everything in them as a tab
            listed_seen, glance_seen, clock = gr.State(""), gr.State(""), gr.Timer(REFRESH)
            # wrapped: in Gradio's menu of those that do not fit, tabs change places a moment after one is pressed
            with gr.Tabs(elem_id="tabs", overflow_behavior="wrap"):
                self._runs_tab(run, listed_seen, clock)
                self._rooms(demo, run, glance_seen, clock)
        return demo

    def _runs_tab(self, run: Any, seen: Any, clock: Any) -> None:
        """Runs and Compare: boxes ticked in one choose for the other."""
        gr = self.gr
        with gr.Tab("Runs", id="runs"):
            with gr.Row(equal_height=True):
                words = gr.Textbox(placeholder="part of an id, a variant, a status", label="Filter", elem_id="filter")
                button = gr.Button("Compare ticked runs", elem_id="compare-ticked", scale=0, min_width=250)
            listed = gr.HTML(
                lambda: runs_table(read_runs()),
                elem_id="runs",
                elem_classes="room",
                apply_default_css=False,
                js_on_load=_text("runs.js"),
            )
        with gr.Tab("Compare", id="compare") as compare_tab:
            several = gr.Dropdown(_ids(), label="Runs", multiselect=True, allow_custom_value=True, elem_id="several")
            compared = gr.HTML(
                note("choose two runs or more"), elem_id="compared", elem_classes="room", apply_default_css=False
            )

        def open_run(event: Any) -> Any:
            return find_run(str(event.run)).id

        def tick(event: Any) -> Any:
            return gr.Dropdown(choices=_ids(), value=[find_run(str(each)).id for each in event.runs])

        for act in (open_run, tick):  # Gradio, which is only there once it is loaded, goes by annotations
            act.__annotations__["event"] = gr.EventData
        listing = self._fresh(lambda text: runs_table(read_runs(text)))
        words.input(listing, [seen, words], [seen, listed], trigger_mode="always_last", **QUIET)
        clock.tick(listing, [seen, words], [seen, listed], **QUIET)
        listed.select(self._told(open_run), None, run, **QUIET).success(None, js=go_to("Overview"))
        listed.submit(self._told(tick), None, several, **QUIET)
        button.click(None, js=go_to("Compare"))
        several.change(self._told(lambda names: compare([read_run(find_run(name)) for name in names or ()])),
                       several, compared, **QUIET)  # fmt: skip
        compare_tab.select(lambda: gr.Dropdown(choices=_ids()), None, several, **QUIET)

    def _rooms(self, demo: Any, run: Any, seen: Any, clock: Any) -> None:
        """The tabs of the one run that is chosen."""
        gr = self.gr
        with gr.Tab("Overview", id="overview"):
            glance = gr.HTML(WELCOME, elem_id="overview", elem_classes="room", apply_default_css=False)
        with gr.Tab("Episode", id="episode"):
            checkpoint, player = self._episode_tab(run)
        with gr.Tab("Videos", id="videos") as videos_tab:
            films = gr.HTML(WELCOME, elem_id="videos", elem_classes="room", apply_default_css=False)
        with gr.Tab("Config & Model", id="model") as model_tab:
            network = gr.HTML(WELCOME, elem_id="model", elem_classes="room", apply_default_css=False)
        rooms = {"films": self._told(self._films), "model": self._told(_model)}

        def opened(name: str | None) -> Any:
            page = _overview(name)
            choices = [*LINKS, *list_checkpoints(find_run(name))] if name else list(LINKS)
            files = gr.Dropdown(choices=choices, value="best")
            return _print(page), page, files, note(NOT_RECORDED), self._films(name), _model(name)

        outputs = [seen, glance, checkpoint, player, films, network]
        demo.load(self._told(opened), run, outputs, **QUIET)
        run.change(self._told(opened), run, outputs, **QUIET)
        run.focus(lambda: gr.Dropdown(choices=_ids()), None, run, **QUIET)
        videos_tab.select(rooms["films"], run, films, **QUIET)
        model_tab.select(rooms["model"], run, network, **QUIET)
        clock.tick(self._fresh(_overview), [seen, run], [seen, glance], **QUIET)

    def _episode_tab(self, run: Any) -> tuple[Any, Any]:
        gr = self.gr
        with gr.Row(equal_height=True):
            checkpoint = gr.Dropdown(list(LINKS), value="best", label="Checkpoint", allow_custom_value=True,
                                     elem_id="checkpoint", min_width=130)  # fmt: skip
            seed = gr.Number(0, label="Seed", precision=0, minimum=0, elem_id="seed", min_width=90)
            mode = gr.Dropdown(list(get_args(Mode)), value="greedy", label="Policy", elem_id="mode", min_width=130)
            steps = gr.Number(1000, label="Max steps", precision=0, minimum=1, maximum=MOST_STEPS,
                              elem_id="max-steps", min_width=100)  # fmt: skip
            button = gr.Button("Record", variant="primary", elem_id="record", min_width=120)
        player = gr.HTML(note(NOT_RECORDED), elem_id="player", elem_classes="room", apply_default_css=False)

        def recorded(name: str, checkpoint: str, seed: float, mode: str, steps: float) -> Markup:
            loaded = load_run(find_run(name or "").id, str(checkpoint))
            return player_markup(record_for_browser(loaded, int(seed), mode, int(steps), self.folder))

        button.click(self._told(recorded), [run, checkpoint, seed, mode, steps], player, api_visibility="private")
        # the numbers travel with the page, frames by the served folder; then nothing is asked of the server
        return checkpoint, player

    def _films(self, name: str | None) -> Markup:
        return videos(read_run(find_run(name)), self.folder) if name else WELCOME

    def _told(self, act: Callable[Given, Made]) -> Callable[Given, Made]:
        """What is wrong becomes a toast of one line, never a stack trace."""

        @wraps(act)
        def told(*given: Given.args, **named: Given.kwargs) -> Made:
            try:
                return act(*given, **named)
            except EXPECTED as error:
                raise self.gr.Error(safe(error), print_exception=False, duration=8) from error

        return told

    def _fresh(self, make: Callable[[str], Markup]) -> Callable[[str, str], Any]:
        """For the clock: send the page only when it differs; what is wrong was told when the run was chosen."""

        def fresh(seen: str, what: str) -> Any:
            try:
                page = make(what)
            except EXPECTED:
                return self.gr.skip()
            return self.gr.skip() if _print(page) == seen else (_print(page), page)

        return fresh


def _text(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def go_to(tab: str) -> str:
    """JavaScript that presses a tab: at once, without a way to the server and back."""
    return f"() => {{ window.strideTab('{tab}') }}"


def _ids() -> list[str]:
    return [run.id for run in list_runs()]


def _overview(name: str | None) -> Markup:
    return overview(read_run(find_run(name))) if name else WELCOME


def _model(name: str | None) -> Markup:
    """Without a checkpoint that loads, the config is still worth reading."""
    if not name:
        return WELCOME
    each = read_run(find_run(name))
    try:
        return model(each, load_run(each.run.id))
    except EXPECTED as error:
        return join([card("Network", note(str(error))), config(each)])


def _print(page: str) -> str:
    return sha256(page.encode()).hexdigest()
