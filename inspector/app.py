"""The page: its tabs, the functions that its events call, and the server.

rooms.py makes escaped HTML; here it is only passed on. Nothing here writes into a run.
"""

import contextlib
import io
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from stride.inspector.compare import RETURN, choices, compare_runs, first_choice
from stride.inspector.events import SESSIONS, WAITING, Check, EventDoor, Fields, is_number, is_text, is_texts
from stride.inspector.guard import Guard, is_any, names_of, one_a_minute
from stride.inspector.markup import safe
from stride.inspector.rooms import COMING, MODES, WELCOME, Rooms
from stride.inspector.runs import PAGE
from stride.inspector.scratch import scratch
from stride.inspector.table import filters, run_label, runs_table
from stride.runstore.checkpoint_set import LINKS
from stride.utils.user_error import UserError

HERE = Path(__file__).parent
REFRESH = 2.0  # seconds
MOST_STEPS = 5000
TABS = ("Overview", "Runs", "Compare", "Episode", "Videos", "Report", "Config & Model")  # as one wants them
LATE = ("Episode", "Videos", "Report", "Config & Model")  # rooms that are made where they are looked at
SCRIPTS = ("files.js", "charts.js", "dreams.js", "episode.js", "trials.js", "page.js")
ASK = "window.strideAskDream = (key, step) => trigger('input', { key, step });"
QUIET = {"show_progress": "hidden", "api_visibility": "private"}
Event = Any
"""Gradio's EventData: `value` of a tab, what runs.js sends of a press on a row (`run`), filters.js of what is looked
for (`words`) and what is to be compared (`runs`), dreams.js of a `step` of the recording `key`."""
Component = Any
"""A part of the page, or all of it."""


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
            self.fields: dict[Callable[..., object], Fields] = {}  # what the event of a function must hold
            self.demo = self._build().queue(max_size=WAITING)
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
        async def guarded(app: Any) -> AsyncIterator[None]:
            door = EventDoor(app.middleware_stack, self.demo, self.fields)
            app.middleware_stack = Guard(door, names, is_any(host))  # outermost: before all of Gradio
            yield

        with contextlib.redirect_stdout(io.StringIO()):  # Gradio speaks in paragraphs
            _, url, public = self.demo.launch(
                server_name=host,
                server_port=port,
                share=share,
                allowed_paths=[str(self.folder)],
                app_kwargs={"lifespan": guarded},
                state_session_capacity=SESSIONS,
                num_workers=0,  # they would serve files without the guard
                theme=theme,
                css=_text("inspector.css"),
                head=f"<style>{_text('page.css')}</style><script>{''.join(map(_text, SCRIPTS))}</script>",
                footer_links=[],
                enable_monitoring=False,
                ssr_mode=False,
                pwa=False,
                mcp_server=False,
                quiet=True,
                prevent_thread_lock=True,
            )
        logging.getLogger("uvicorn.error").addFilter(one_a_minute())  # of requests that are no HTTP
        threading.Thread(target=self.rooms.runs.read_ahead, daemon=True).start()
        if public:
            names.add(urlsplit(public).netloc)
        if share and not public:
            raise UserError("--share got no public address from Gradio's servers; check the network")
        return str(public or url)

    def _build(self) -> Any:
        gr = self.gr
        with gr.Blocks(title="Stride inspector", analytics_enabled=False) as demo:
            with gr.Row(elem_id="head"):
                gr.HTML("<div id='title'><h1>Stride</h1><span>inspector</span></div>", scale=1)
                ids = [*map(run_label, self.rooms.runs.ids())]
                run = gr.Dropdown(ids, show_label=False, value=self.run_id or None, allow_custom_value=True,
                                  elem_id="run", scale=3, container=False, label="run")  # fmt: skip
            # outside of the tabs: Gradio numbers everything in them as a tab
            self.seen, self.room, self.most = gr.State(("", "")), gr.State(TABS[0]), gr.State(PAGE)
            self.words = gr.State("")
            with gr.Tabs(elem_id="tabs", overflow_behavior="wrap") as tabs:
                rooms = {tab_name: gr.Tab(tab_name, id=tab_name) for tab_name in TABS}
            line, listed, more = self._runs_tab(rooms["Runs"], run)
            self._compare_tab(rooms["Compare"], line)
            overview = self._run_tabs(demo, rooms, run)
            shown = [self.seen, listed, more, overview]
            gr.Timer(REFRESH).tick(self._fresh, [self.seen, self.words, self.most, run], shown, **QUIET)
            tabs.select(self._on_event(lambda event: str(event.value), value=is_text), None, self.room, **QUIET)
        return demo

    def _on_event(self, act: Callable[[Event], object], **fields: Check) -> Callable[[Event], object]:
        """A function that Gradio calls with the event data, by its annotation. `fields`: the data that it reads."""

        def on_event(event: Event) -> object:
            return act(event)

        on_event.__annotations__["event"] = self.gr.EventData
        shielded = self._as_toasts(on_event)
        self.fields[shielded] = fields
        return shielded

    def _html(self, value: object, tab_name: str, **more: Any) -> Any:
        return self.gr.HTML(value, elem_id=tab_name, elem_classes="room", apply_default_css=False, **more)

    def _runs_tab(self, tab: Component, run: Component) -> tuple[Any, Any, Any]:
        """The table and the line above it; a press on a row opens the run."""
        gr, runs = self.gr, self.rooms.runs
        with tab:
            line = self._html(filters(), "filters", js_on_load=_text("filters.js"))
            listed = self._html(lambda: runs_table(runs.page()), "runs", js_on_load=_text("runs.js"))
            more = gr.Button(f"Show {PAGE} more", elem_id="more", visible=len(runs.ids(PAGE + 1)) > PAGE, size="sm")

        def table(words: str, most: int) -> Any:
            page = runs.page(words, most)
            return words, most, runs_table(page), gr.Button(visible=page.goes_on)

        shown = [self.words, self.most, listed, more]
        # always_last: while a table is made, of all that is typed only the last line waits
        line.input(self._on_event(lambda event: table(str(event.words), PAGE), words=is_text), None, shown,
                   trigger_mode="always_last", **QUIET)  # fmt: skip
        more.click(lambda words, most: table(words, most + PAGE), [self.words, self.most], shown, **QUIET)
        opened = listed.select(
            self._on_event(lambda event: runs.find(str(event.run)).id, run=is_text), None, run, **QUIET
        )
        opened.success(None, js=go_to(TABS[0]))
        return line, listed, more

    def _compare_tab(self, tab: Component, line: Component) -> None:
        """Filled as soon as it is opened; boxes ticked in the table select the runs."""
        gr, runs = self.gr, self.rooms.runs
        with tab:
            several = gr.Dropdown([], show_label=False, label="groups and runs", multiselect=True, container=False,
                                  allow_custom_value=True, elem_id="several")  # fmt: skip
            metrics = gr.Dropdown([("Return", RETURN)], value=[RETURN], show_label=False, label="metrics",
                                  multiselect=True, container=False, elem_id="metrics")  # fmt: skip
            compared = self._html(COMING, "compared")

        def shown(names: list[str] | None, metric_names: list[str] | None) -> Any:
            page, options = compare_runs(runs, names or (), metric_names or (RETURN,))
            return gr.Dropdown(choices=options), page

        def offered(names: list[str] | None, metric_names: list[str] | None) -> Any:
            names = names or first_choice(runs)
            return gr.Dropdown(choices=choices(runs), value=names), *shown(names, metric_names)

        def ticked(event: Event) -> Any:
            return gr.Dropdown(choices=choices(runs), value=[runs.find(str(selector)).id for selector in event.runs])

        inputs = [several, metrics]
        tab.select(self._as_toasts(offered), inputs, [several, metrics, compared], **QUIET)
        submitted = line.submit(self._on_event(ticked, runs=is_texts), None, several, **QUIET)
        submitted.success(None, js=go_to("Compare"))
        for component in inputs:  # always_last: a late answer to an earlier choice never stands under the last one
            component.change(self._as_toasts(shown), inputs, [metrics, compared], trigger_mode="always_last", **QUIET)

    def _run_tabs(self, demo: Component, tabs: Mapping[str, Component], run: Component) -> Any:
        """Build the tabs of the one run that is chosen; returns the overview."""
        gr, rooms = self.gr, self.rooms
        with tabs["Overview"]:
            overview = self._html(WELCOME, "overview")
        with tabs["Episode"]:
            inputs, record, player = self._episode_tab()
        with tabs["Videos"]:
            videos = self._html(COMING, "videos")
            record_video = gr.Button("Record an episode", elem_id="film", size="sm")
        with tabs["Report"]:
            report = self._html(COMING, "report")
        with tabs["Config & Model"]:
            network = self._html(COMING, "model")
        late = [player, videos, report, network]
        tab_functions = dict(zip(LATE, (rooms.recorded, rooms.videos, rooms.report, rooms.model), strict=True))

        def opened(run_id: str | None, room: str) -> Any:
            epochs = rooms.checkpoints(rooms.runs.find(run_id)) if run_id else []
            files = gr.Dropdown(choices=[*LINKS, *epochs], value="best")
            pages = [tab_functions[tab_name](run_id) if tab_name == room else COMING for tab_name in LATE]
            return rooms.overview(run_id), files, *pages

        def recorded(run_id: str, *inputs: Any) -> Any:
            return rooms.episode(run_id, *inputs), rooms.videos(run_id)

        outputs = [overview, inputs[0], *late]
        for trigger in (demo.load, run.change):
            trigger(self._as_toasts(opened), [run, self.room], outputs, **QUIET)
        # the page may be older than the newest run
        run.focus(lambda: gr.Dropdown(choices=[*map(run_label, rooms.runs.ids())]), None, run, **QUIET)
        for tab_name, room in zip(LATE, late, strict=True):
            tabs[tab_name].select(tab_functions[tab_name], run, room, **QUIET)
        # the numbers travel with the page, frames by the served folder; then nothing is asked of the server
        for button in (record, record_video):
            button.click(self._as_toasts(recorded), [run, *inputs], [player, videos], api_visibility="private")
        return overview

    def _episode_tab(self) -> tuple[list[Any], Any, Any]:
        """Build the tab; returns the inputs, the button and the player."""
        gr = self.gr
        with gr.Row(elem_id="asked"):
            checkpoint = gr.Dropdown(list(LINKS), value="best", label="Checkpoint", allow_custom_value=True,
                                     elem_id="checkpoint", min_width=130)  # fmt: skip
            seed = gr.Number(0, label="Seed", precision=0, minimum=0, elem_id="seed", min_width=90)
            mode = gr.Dropdown(list(MODES), value=MODES[0], label="Policy", elem_id="mode", min_width=130)
            steps = gr.Number(1000, label="Max steps", precision=0, minimum=1, maximum=MOST_STEPS,
                              elem_id="max-steps", min_width=100)  # fmt: skip
            record = gr.Button("Record", variant="primary", elem_id="record", min_width=110, scale=0)
        player = self._html(COMING, "player")
        ask, answer = self._html("", "ask-dream", js_on_load=ASK), self._html("", "dreamt")
        dream = self._on_event(lambda event: self.rooms.dream(str(event.key), event.step), key=is_text, step=is_number)
        ask.input(dream, None, answer, trigger_mode="always_last", **QUIET)
        return [checkpoint, seed, mode, steps], record, player

    def _as_toasts(self, act: Callable[..., Any]) -> Callable[..., Any]:
        """An error becomes a toast of one line, never a stack trace."""

        @wraps(act)
        def guarded(*values: object) -> Any:
            try:
                return act(*values)
            except UserError as error:
                raise self.gr.Error(safe(error), print_exception=False, duration=8) from error

        return guarded

    def _fresh(self, old_hashes: Sequence[str], words: str, most: int, tab_name: str | None) -> Any:
        """For the timer: a tab is sent only when it differs from what the page shows."""
        page = self.rooms.runs.page(words, most)
        table = runs_table(page)
        overview = self.rooms.overview(tab_name)
        hashes = [sha256(html.encode()).hexdigest() for html in (table, overview)]
        outputs = [hashes, table, self.gr.Button(visible=page.goes_on), overview]
        is_table_new, is_overview_new = (new != old for new, old in zip(hashes, old_hashes, strict=True))
        is_new = (is_table_new or is_overview_new, is_table_new, is_table_new, is_overview_new)
        return [output if new else self.gr.skip() for output, new in zip(outputs, is_new, strict=True)]


def _text(tab_name: str) -> str:
    return (HERE / tab_name).read_text(encoding="utf-8")


def go_to(tab: str) -> str:
    """JavaScript that presses a tab: at once, without a way to the server and back."""
    return f"() => {{ window.strideTab('{tab}') }}"
