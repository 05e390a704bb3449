"""The page: a tab per room, who is asked when something is chosen, and what is served to whom.

Rooms make escaped HTML of what they read; here it is only passed on. Nothing here writes into a run.
"""

import contextlib
import io
import os
from collections.abc import AsyncIterator, Callable, Iterable
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar
from urllib.parse import urlsplit

from inspector.compare import compare
from inspector.guard import App, Guard, is_any, names_of
from inspector.markup import note, safe
from inspector.rooms import MODES, WELCOME, Rooms
from inspector.runs import PAGE
from inspector.scratch import scratch
from inspector.table import runs_table
from utils.checkpoint_set import LINKS
from utils.user_error import UserError

HERE = Path(__file__).parent
REFRESH = 2.0  # seconds
MOST_STEPS = 5000
MODEL = "Config & Model"
NOT_RECORDED = "record an episode, then scrub through it"
QUIET = {"show_progress": "hidden", "api_visibility": "private"}
Given = ParamSpec("Given")
Made = TypeVar("Made")


class Served(Protocol):
    """What is used of Gradio's ASGI application."""

    middleware_stack: App


class Event(Protocol):
    """Gradio's EventData: `value` of a tab, what runs.js says of a press on a row (`run`) or on boxes (`runs`)."""

    value: object
    run: object
    runs: Iterable[object]


class Component(Protocol):
    """A part of the page, or all of it: Gradio gives it its listeners (`change`, `select`, `load`) once loaded."""

    def __getattr__(self, listener: str) -> Callable[..., Any]: ...


def load_gradio() -> Any:
    """Gradio, told before it starts to call nobody and to keep no statistics, or the line that says how to get it."""
    os.environ |= {"GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_ANALYTICS_MAX_EVENTS": "1"}
    os.environ["GRADIO_ANALYTICS_CACHE_FREQUENCY"] = "1000000000"  # a table of the last 10,000 events after each
    try:
        import gradio
    except ImportError as error:
        raise UserError("the inspector needs Gradio: pip install 'stride-rl[web]'") from error
    return gradio


class Inspector:
    """Owns the folder that is served: `with Inspector("@last") as inspector: inspector.launch(...)`."""

    def __init__(self, selector: str) -> None:
        with contextlib.ExitStack() as stack:
            self.folder = stack.enter_context(scratch())
            os.environ["GRADIO_TEMP_DIR"] = str(self.folder / "gradio")  # what Gradio stores ends with the folder
            self.gr = load_gradio()
            self.rooms = Rooms(self.folder)
            self.run_id = self._first(selector)
            self.demo = self._build()
            self._stack = stack.pop_all()

    def __enter__(self) -> "Inspector":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self.demo.close(verbose=False)

    def _first(self, selector: str) -> str:
        """The run to begin with; without any run the page is empty, but there."""
        return self.rooms.runs.find(selector).id if self.rooms.runs.ids(1) or selector != "@last" else ""

    def launch(self, host: str, port: int, share: bool) -> str:
        """Serve from threads of its own; returns the address, the public one where it is shared."""
        theme = self.gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
        names = names_of(host, port)

        @contextlib.asynccontextmanager
        async def guarded(app: Served) -> AsyncIterator[None]:
            app.middleware_stack = Guard(app.middleware_stack, names, is_any(host))  # outermost: before all of Gradio
            yield

        with contextlib.redirect_stdout(io.StringIO()):  # Gradio speaks in paragraphs
            _, url, public = self.demo.launch(
                server_name=host,
                server_port=port,
                share=share,
                allowed_paths=[str(self.folder)],
                app_kwargs={"lifespan": guarded},
                num_workers=0,  # they would serve files without the guard
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
        if public:
            names.add(urlsplit(public).netloc)
        if share and not public:
            raise UserError("--share got no public address from Gradio's servers: is there a network?")
        return str(public or url)

    def _build(self) -> Any:
        gr = self.gr
        with gr.Blocks(title="Stride inspector", analytics_enabled=False) as demo:
            with gr.Row(equal_height=True):
                gr.HTML("<div id='title'><h1>Stride</h1><span>inspector</span></div>", scale=1)
                run = gr.Dropdown(self._ids(), label="Run", value=self.run_id or None, allow_custom_value=True,
                                  elem_id="run", scale=3)  # fmt: skip
            # outside of the tabs: Gradio numbers everything in them as a tab
            self.seen, self.room, self.most = gr.State(("", "")), gr.State(""), gr.State(PAGE)
            # wrapped: in Gradio's menu of those that do not fit, tabs change places a moment after one is pressed
            with gr.Tabs(elem_id="tabs", overflow_behavior="wrap") as tabs:
                words, listed, more = self._runs_tab(run)
                glance = self._rooms(demo, run)
            shown = [self.seen, listed, more, glance]
            gr.Timer(REFRESH).tick(self._fresh, [self.seen, words, self.most, run], shown, **QUIET)
            tabs.select(self._on_event(lambda event: str(event.value)), None, self.room, **QUIET)
        return demo

    def _on_event(self, act: Callable[[Event], object]) -> Callable[[Event], object]:
        """Gradio, which is only there once it is loaded, goes by annotations."""

        def on_event(event: Event) -> object:
            return act(event)

        on_event.__annotations__["event"] = self.gr.EventData
        return self._as_toasts(on_event)

    def _runs_tab(self, run: Component) -> tuple[Any, Any, Any]:
        """Runs and Compare: boxes ticked in one choose for the other."""
        gr, runs = self.gr, self.rooms.runs
        with gr.Tab("Runs", id="runs"):
            with gr.Row(equal_height=True):
                words = gr.Textbox(placeholder="part of an id, a variant, a status", label="Filter", elem_id="filter")
                button = gr.Button("Compare ticked runs", elem_id="compare-ticked", scale=0, min_width=250)
            listed = gr.HTML(
                lambda: runs_table(runs.page()),
                elem_id="runs",
                elem_classes="room",
                apply_default_css=False,
                js_on_load=_text("runs.js"),
            )
            more = gr.Button(f"Show {PAGE} more", elem_id="more", visible=len(runs.ids(PAGE + 1)) > PAGE)
        with gr.Tab("Compare", id="compare") as compare_tab:
            several = gr.Dropdown(self._ids(), label="Runs", multiselect=True, allow_custom_value=True,
                                  elem_id="several")  # fmt: skip
            compared = gr.HTML(
                note("choose two runs or more"), elem_id="compared", elem_classes="room", apply_default_css=False
            )

        def table(words: str, most: int) -> Any:
            page = runs.page(words, most)
            return runs_table(page), gr.Button(visible=page.goes_on)

        def longer(words: str, most: int) -> Any:
            return most + PAGE, *table(words, most + PAGE)

        def ticked(event: Event) -> Any:
            return gr.Dropdown(choices=self._ids(), value=[runs.find(str(each)).id for each in event.runs])

        # always_last: while a table is made, of all that is typed only the last filter waits
        words.input(table, [words, self.most], [listed, more], trigger_mode="always_last", **QUIET)
        more.click(longer, [words, self.most], [self.most, listed, more], **QUIET)
        opened = listed.select(self._on_event(lambda event: runs.find(str(event.run)).id), None, run, **QUIET)
        opened.success(None, js=go_to("Overview"))
        listed.submit(self._on_event(ticked), None, several, **QUIET)
        button.click(None, js=go_to("Compare"))
        several.change(self._as_toasts(lambda names: compare([runs.look_into(name) for name in names or ()])),
                       several, compared, **QUIET)  # fmt: skip
        compare_tab.select(lambda: gr.Dropdown(choices=self._ids()), None, several, **QUIET)
        return words, listed, more

    def _rooms(self, demo: Component, run: Component) -> Any:
        """The tabs of the one run that is chosen; -> the overview."""
        gr, rooms = self.gr, self.rooms
        with gr.Tab("Overview", id="overview"):
            glance = gr.HTML(WELCOME, elem_id="overview", elem_classes="room", apply_default_css=False)
        with gr.Tab("Episode", id="episode"):
            checkpoint, player = self._episode_tab(run)
        with gr.Tab("Videos", id="videos") as videos_tab:
            films = gr.HTML(WELCOME, elem_id="videos", elem_classes="room", apply_default_css=False)
        with gr.Tab(MODEL, id="model") as model_tab:
            network = gr.HTML(WELCOME, elem_id="model", elem_classes="room", apply_default_css=False)

        def opened(name: str | None, room: str) -> Any:
            """The two rooms that cost more are made where they are looked at."""
            choices = [*LINKS, *(rooms.checkpoints(rooms.runs.find(name)) if name else ())]
            files = gr.Dropdown(choices=choices, value="best")
            made = rooms.videos(name) if room == "Videos" else WELCOME, rooms.model(name) if room == MODEL else WELCOME
            return rooms.overview(name), files, note(NOT_RECORDED), *made

        outputs = [glance, checkpoint, player, films, network]
        demo.load(self._as_toasts(opened), [run, self.room], outputs, **QUIET)
        run.change(self._as_toasts(opened), [run, self.room], outputs, **QUIET)
        # the page may be older than the newest run
        run.focus(lambda: gr.Dropdown(choices=self._ids()), None, run, **QUIET)
        videos_tab.select(rooms.videos, run, films, **QUIET)
        model_tab.select(rooms.model, run, network, **QUIET)
        return glance

    def _episode_tab(self, run: Component) -> tuple[Any, Any]:
        gr = self.gr
        with gr.Row(equal_height=True):
            checkpoint = gr.Dropdown(list(LINKS), value="best", label="Checkpoint", allow_custom_value=True,
                                     elem_id="checkpoint", min_width=130)  # fmt: skip
            seed = gr.Number(0, label="Seed", precision=0, minimum=0, elem_id="seed", min_width=90)
            mode = gr.Dropdown(list(MODES), value=MODES[0], label="Policy", elem_id="mode", min_width=130)
            steps = gr.Number(1000, label="Max steps", precision=0, minimum=1, maximum=MOST_STEPS,
                              elem_id="max-steps", min_width=100)  # fmt: skip
            button = gr.Button("Record", variant="primary", elem_id="record", min_width=120)
        player = gr.HTML(note(NOT_RECORDED), elem_id="player", elem_classes="room", apply_default_css=False)
        asked = [run, checkpoint, seed, mode, steps]
        button.click(self._as_toasts(self.rooms.episode), asked, player, api_visibility="private")
        # the numbers travel with the page, frames by the served folder; then nothing is asked of the server
        return checkpoint, player

    def _ids(self) -> list[str]:
        return self.rooms.runs.ids()

    def _as_toasts(self, act: Callable[Given, Made]) -> Callable[Given, Made]:
        """What is wrong becomes a toast of one line, never a stack trace."""

        @wraps(act)
        def guarded(*given: Given.args, **named: Given.kwargs) -> Made:
            try:
                return act(*given, **named)
            except UserError as error:
                raise self.gr.Error(safe(error), print_exception=False, duration=8) from error

        return guarded

    def _fresh(self, seen: tuple[str, str], words: str, most: int, name: str | None) -> Any:
        """For the clock: a room is sent only when it differs from what the page shows."""
        page, same = self.rooms.runs.page(words, most), self.gr.skip()
        table, overview = runs_table(page), self.rooms.overview(name)
        now = (_print(table), _print(overview))
        listed = (table, self.gr.Button(visible=page.goes_on)) if now[0] != seen[0] else (same, same)
        return now if now != tuple(seen) else same, *listed, overview if now[1] != seen[1] else same


def _text(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def go_to(tab: str) -> str:
    """JavaScript that presses a tab: at once, without a way to the server and back."""
    return f"() => {{ window.strideTab('{tab}') }}"


def _print(page: str) -> str:
    return sha256(page.encode()).hexdigest()
