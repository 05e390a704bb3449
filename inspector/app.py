"""Builds the inspector's page with Gradio and serves it: the tabs, and the functions that events of the page call.

The HTML in the tabs comes, already escaped, from rooms.py, table.py and compare.py. Nothing here writes into a run.
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
from stride.inspector.events import MAX_SESSIONS, MAX_WAITING, Check, EventDoor, Fields, is_number, is_text, is_texts
from stride.inspector.guard import Guard, is_any, names_of, one_a_minute
from stride.inspector.markup import safe
from stride.inspector.rooms import COMING, MODES, WELCOME, Rooms
from stride.inspector.runs import PAGE_RUNS
from stride.inspector.scratch import scratch
from stride.inspector.table import filters, run_label, runs_table
from stride.runstore.checkpoint_set import LINKS
from stride.utils.user_error import UserError

HERE = Path(__file__).parent
REFRESH = 2.0  # seconds between two updates of the table of runs and the overview
MAX_STEPS = 5000  # of a recorded episode
TABS = ("Overview", "Runs", "Compare", "Episode", "Videos", "Report", "Config & Model")  # from left to right
LATE_TABS = ("Episode", "Videos", "Report", "Config & Model")  # slow tabs: their content is made when they are opened
SCRIPTS = ("files.js", "charts.js", "dreams.js", "episode.js", "trials.js", "page.js")
ASK_SCRIPT = "window.strideAskDream = (key, step) => trigger('input', { key, step });"
QUIET = {"show_progress": "hidden", "api_visibility": "private"}  # for events: no spinner, not in Gradio's public API
Event = Any
"""Gradio's EventData. Its attributes depend on the sender:

a tab        value   the name of the tab
runs.js      run     the run whose row was clicked
filters.js   words   the text of the filter line;   runs   the runs to compare
dreams.js    key     a recording;                   step   the step from which to dream"""
Component = Any
"""Gradio's class for a part of the page, or for all of it."""


def load_gradio() -> Any:
    """Import Gradio with its calls home and its statistics switched off; UserError says how to install it."""
    os.environ |= {"GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_ANALYTICS_MAX_EVENTS": "1"}
    # or Gradio would make a table of its last 10,000 events after each event
    os.environ["GRADIO_ANALYTICS_CACHE_FREQUENCY"] = "1000000000"
    try:
        import gradio
    except ImportError as error:
        raise UserError("the inspector needs Gradio: pip install 'stride-rl[web]'") from error
    return gradio


class Inspector:
    """The page, its server and the temporary folder of videos: `with Inspector("@last") as page: page.launch(...)`.

    `selector`: the run that is shown first.
    """

    def __init__(self, selector: str) -> None:
        with contextlib.ExitStack() as stack:
            self.folder = stack.enter_context(scratch())
            os.environ["GRADIO_TEMP_DIR"] = str(self.folder / "gradio")  # so Gradio's files are deleted, too
            self.gr = load_gradio()
            self.rooms = Rooms(self.folder)
            self.run_id = self._first(selector)
            self.fields: dict[Callable[..., object], Fields] = {}  # function -> checks of the event data that it reads
            self.demo = self._build().queue(max_size=MAX_WAITING)
            self._stack = stack.pop_all()

    def __enter__(self) -> "Inspector":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self.demo.close(verbose=False)

    def _first(self, selector: str) -> str:
        """Return the id of the run that is shown first; "" if there are no runs and none was asked for."""
        return self.rooms.runs.find(selector).id if self.rooms.runs.ids(1) or selector != "@last" else ""

    def launch(self, host: str, port: int, share: bool) -> str:
        """Start the server in its own threads and return its address, the public one if `share` is set.

        UserError if Gradio's servers give no public address."""
        theme = self.gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
        names = names_of(host, port)

        @contextlib.asynccontextmanager
        async def guarded(app: Any) -> AsyncIterator[None]:
            door = EventDoor(app.middleware_stack, self.demo, self.fields)
            app.middleware_stack = Guard(door, names, is_any(host))  # outermost, so it runs before all of Gradio
            yield

        with contextlib.redirect_stdout(io.StringIO()):  # Gradio prints paragraphs
            _, url, public = self.demo.launch(
                server_name=host,
                server_port=port,
                share=share,
                allowed_paths=[str(self.folder)],
                app_kwargs={"lifespan": guarded},
                state_session_capacity=MAX_SESSIONS,
                num_workers=0,  # Gradio's extra workers would serve files without the guard
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
        logging.getLogger("uvicorn.error").addFilter(one_a_minute())  # its warnings about requests that are not HTTP
        threading.Thread(target=self.rooms.runs.read_ahead, daemon=True).start()
        if public:
            names.add(urlsplit(public).netloc)
        if share and not public:
            raise UserError("--share got no public address from Gradio's servers; check the network")
        return str(public or url)

    def _build(self) -> Any:
        """Build the page: the head with the choice of a run, the tabs, and the timer that refreshes them."""
        gr = self.gr
        with gr.Blocks(title="Stride inspector", analytics_enabled=False) as demo:
            with gr.Row(elem_id="head"):
                gr.HTML("<div id='title'><h1>Stride</h1><span>inspector</span></div>", scale=1)
                ids = [*map(run_label, self.rooms.runs.ids())]
                run = gr.Dropdown(ids, show_label=False, value=self.run_id or None, allow_custom_value=True,
                                  elem_id="run", scale=3, container=False, label="run")  # fmt: skip
            # States of one browser page: hashes of the HTML that it shows, the open tab, the number of rows, the filter
            # line's text. They are made outside of the tabs, because Gradio numbers everything inside as a tab.
            self.shown_hashes = gr.State(("", ""))
            self.open_tab, self.row_count, self.filter_text = gr.State(TABS[0]), gr.State(PAGE_RUNS), gr.State("")
            with gr.Tabs(elem_id="tabs", overflow_behavior="wrap") as tabs:
                rooms = {tab_name: gr.Tab(tab_name, id=tab_name) for tab_name in TABS}
            filter_line, run_table, more = self._runs_tab(rooms["Runs"], run)
            self._compare_tab(rooms["Compare"], filter_line)
            overview = self._run_tabs(demo, rooms, run)
            shown = [self.shown_hashes, run_table, more, overview]
            gr.Timer(REFRESH).tick(
                self._fresh, [self.shown_hashes, self.filter_text, self.row_count, run], shown, **QUIET
            )
            tabs.select(self._on_event(lambda event: str(event.value), value=is_text), None, self.open_tab, **QUIET)
        return demo

    def _on_event(self, act: Callable[[Event], object], **fields: Check) -> Callable[[Event], object]:
        """Return a function that calls `act` with the event data. `fields`: checks of the data that `act` reads.

        Gradio passes event data only to a parameter that is annotated with its class."""

        def on_event(event: Event) -> object:
            return act(event)

        on_event.__annotations__["event"] = self.gr.EventData
        shielded = self._as_toasts(on_event)
        self.fields[shielded] = fields
        return shielded

    def _html(self, value: object, element_id: str, **more: Any) -> Any:
        """Return a part of the page with this HTML, or with a function that makes it when the page is loaded."""
        return self.gr.HTML(value, elem_id=element_id, elem_classes="room", apply_default_css=False, **more)

    def _runs_tab(self, tab: Component, run: Component) -> tuple[Any, Any, Any]:
        """Build the table of runs and the filter line above it; a click on a row opens the run.

        Return the filter line, the table and the button for more rows."""
        gr, runs = self.gr, self.rooms.runs
        with tab:
            filter_line = self._html(filters(), "filters", js_on_load=_text("filters.js"))
            run_table = self._html(lambda: runs_table(runs.page()), "runs", js_on_load=_text("runs.js"))
            more = gr.Button(
                f"Show {PAGE_RUNS} more", elem_id="more", visible=len(runs.ids(PAGE_RUNS + 1)) > PAGE_RUNS, size="sm"
            )

        def table(words: str, most: int) -> Any:
            page = runs.page(words, most)
            return words, most, runs_table(page), gr.Button(visible=page.goes_on)

        shown = [self.filter_text, self.row_count, run_table, more]
        # always_last: while a table is being made, only the last of the lines typed meanwhile waits
        filter_line.input(self._on_event(lambda event: table(str(event.words), PAGE_RUNS), words=is_text), None, shown,
                   trigger_mode="always_last", **QUIET)  # fmt: skip
        more.click(
            lambda words, most: table(words, most + PAGE_RUNS), [self.filter_text, self.row_count], shown, **QUIET
        )
        opened = run_table.select(
            self._on_event(lambda event: runs.find(str(event.run)).id, run=is_text), None, run, **QUIET
        )
        opened.success(None, js=go_to(TABS[0]))
        return filter_line, run_table, more

    def _compare_tab(self, tab: Component, filter_line: Component) -> None:
        """Build the tab Compare. It is filled when it is opened; boxes ticked in the table of runs choose the runs."""
        gr, runs = self.gr, self.rooms.runs
        with tab:
            selected = gr.Dropdown([], show_label=False, label="groups and runs", multiselect=True, container=False,
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

        inputs = [selected, metrics]
        tab.select(self._as_toasts(offered), inputs, [selected, metrics, compared], **QUIET)
        submitted = filter_line.submit(self._on_event(ticked, runs=is_texts), None, selected, **QUIET)
        submitted.success(None, js=go_to("Compare"))
        for component in inputs:  # always_last: a late answer to an earlier choice never replaces the last one
            component.change(self._as_toasts(shown), inputs, [metrics, compared], trigger_mode="always_last", **QUIET)

    def _run_tabs(self, demo: Component, tabs: Mapping[str, Component], run: Component) -> Any:
        """Build the tabs about the chosen run; return the overview, which the timer refreshes."""
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
        tab_functions = dict(zip(LATE_TABS, (rooms.recorded, rooms.videos, rooms.report, rooms.model), strict=True))

        def opened(run_id: str | None, room: str) -> Any:
            epochs = rooms.checkpoints(rooms.runs.find(run_id)) if run_id else []
            files = gr.Dropdown(choices=[*LINKS, *epochs], value="best")
            pages = [tab_functions[tab_name](run_id) if tab_name == room else COMING for tab_name in LATE_TABS]
            return rooms.overview(run_id), files, *pages

        def recorded(run_id: str, *inputs: Any) -> Any:
            return rooms.episode(run_id, *inputs), rooms.videos(run_id)

        outputs = [overview, inputs[0], *late]
        for trigger in (demo.load, run.change):
            trigger(self._as_toasts(opened), [run, self.open_tab], outputs, **QUIET)
        # the page may be older than the newest run
        run.focus(lambda: gr.Dropdown(choices=[*map(run_label, rooms.runs.ids())]), None, run, **QUIET)
        for tab_name, room in zip(LATE_TABS, late, strict=True):
            tabs[tab_name].select(tab_functions[tab_name], run, room, **QUIET)
        # a recording's numbers are in the page and its frames in the served folder, so scrubbing needs no server
        for button in (record, record_video):
            button.click(self._as_toasts(recorded), [run, *inputs], [player, videos], api_visibility="private")
        return overview

    def _episode_tab(self) -> tuple[list[Any], Any, Any]:
        """Build the tab Episode; return the inputs, the button Record and the player."""
        gr = self.gr
        with gr.Row(elem_id="asked"):
            checkpoint = gr.Dropdown(list(LINKS), value="best", label="Checkpoint", allow_custom_value=True,
                                     elem_id="checkpoint", min_width=130)  # fmt: skip
            seed = gr.Number(0, label="Seed", precision=0, minimum=0, elem_id="seed", min_width=90)
            mode = gr.Dropdown(list(MODES), value=MODES[0], label="Policy", elem_id="mode", min_width=130)
            steps = gr.Number(1000, label="Max steps", precision=0, minimum=1, maximum=MAX_STEPS,
                              elem_id="max-steps", min_width=100)  # fmt: skip
            record = gr.Button("Record", variant="primary", elem_id="record", min_width=110, scale=0)
        player = self._html(COMING, "player")
        ask, answer = self._html("", "ask-dream", js_on_load=ASK_SCRIPT), self._html("", "dreamt")
        dream = self._on_event(lambda event: self.rooms.dream(str(event.key), event.step), key=is_text, step=is_number)
        ask.input(dream, None, answer, trigger_mode="always_last", **QUIET)
        return [checkpoint, seed, mode, steps], record, player

    def _as_toasts(self, act: Callable[..., Any]) -> Callable[..., Any]:
        """Return `act` with UserError shown as a toast, a message of one line, instead of a stack trace."""

        @wraps(act)
        def guarded(*values: object) -> Any:
            try:
                return act(*values)
            except UserError as error:
                raise self.gr.Error(safe(error), print_exception=False, duration=8) from error

        return guarded

    def _fresh(self, old_hashes: Sequence[str], words: str, most: int, run_id: str | None) -> Any:
        """Return the new table and overview for the timer; what the page already shows is skipped.

        `old_hashes`: SHA-256 of the table and the overview that the page shows."""
        page = self.rooms.runs.page(words, most)
        table = runs_table(page)
        overview = self.rooms.overview(run_id)
        hashes = [sha256(html.encode()).hexdigest() for html in (table, overview)]
        outputs = [hashes, table, self.gr.Button(visible=page.goes_on), overview]
        is_table_new, is_overview_new = (new != old for new, old in zip(hashes, old_hashes, strict=True))
        is_new = (is_table_new or is_overview_new, is_table_new, is_table_new, is_overview_new)
        return [output if new else self.gr.skip() for output, new in zip(outputs, is_new, strict=True)]


def _text(file_name: str) -> str:
    return (HERE / file_name).read_text(encoding="utf-8")


def go_to(tab: str) -> str:
    """Return JavaScript that opens a tab in the browser at once, without asking the server."""
    return f"() => {{ window.strideTab('{tab}') }}"
