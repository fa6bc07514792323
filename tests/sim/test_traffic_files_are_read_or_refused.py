"""Traffic files: what is well formed is read, and what is not is answered with file, line, column, value and remedy."""

import gzip
import json

import numpy as np
import pytest

from tierkeeper.sim.traffic import TraceError, load_requests, read_azure, read_clients, read_lengths, read_mooncake
from tierkeeper.sim.traffic.table import Column, read_table
from tierkeeper.sim.traffic.traces import read_rate

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
GOOD_AZURE = AZURE + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
MOONCAKE = "timestamp_ms,input_length,output_length\n"
RATE = "t_s,rate_rps\n"
CLIENTS = "client,t_s,rate_rps,arrival,p1\n"
READERS = {
    "azure": read_azure,
    "mooncake": read_mooncake,
    "rate": read_rate,
    "clients": read_clients,
    "lengths": read_lengths,
}


@pytest.fixture
def write(tmp_path):
    def _write(text, name="trace.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return _write


# --- read ---------------------------------------------------------------------------------------------------------


def test_an_azure_trace_begins_at_its_first_request(write):
    requests = read_azure(write(GOOD_AZURE))
    assert requests.arrival == pytest.approx([0.0, 4.314579], abs=1e-6)
    assert requests.prompt.tolist() == [374, 396]
    assert requests.output.tolist() == [44, 109]


@pytest.mark.parametrize(
    "stamps",
    [
        ("2024-05-10 00:00:00.009930+00:00", "2024-05-10 00:00:01.009930+00:00"),
        ("2024-05-10T00:00:00Z", "2024-05-10T00:00:01Z"),
        ("2024-05-10 00:00", "2024-05-10 00:00:01"),
        ("1715299200.5", "1715299201.5"),
    ],
)
def test_dates_are_read_with_or_without_their_mark_of_utc_and_seconds_too(write, stamps):
    requests = read_azure(write(AZURE + "".join(f"{stamp},1,1\n" for stamp in stamps)))
    assert requests.arrival == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("gzip", lambda text: gzip.compress(text.encode(), mtime=0)),
        ("byte order mark", lambda text: b"\xef\xbb\xbf" + text.encode()),
        ("Windows line ends", lambda text: text.replace("\n", "\r\n").encode()),
        ("blank lines", lambda text: ("\n" + text.replace("\n", "\n\n")).encode()),
        ("no last line end", lambda text: text.rstrip("\n").encode()),
        ("spaces and case in the header", lambda text: text.replace("ContextTokens", " contexttokens ").encode()),
        ("quotes", lambda text: text.replace("374", '"374"').encode()),
        ("other columns", lambda text: b"".join(b"x," + line + b"\n" for line in text.encode().splitlines())),
        ("whole numbers as decimals", lambda text: text.replace("374", "374.0").encode()),
    ],
)
def test_what_exporting_tools_do_to_a_file_changes_nothing(write, name, change):
    assert read_azure(write(change(GOOD_AZURE), "trace.data")).prompt.tolist() == [374, 396]


@pytest.mark.parametrize(
    ("form", "text"),
    [("azure", AZURE + "1700000000.5,1,1\n"), ("mooncake", MOONCAKE + "1700000000500,1,1\n")],
)
def test_a_stamp_may_count_from_1970_in_its_columns_unit(write, form, text):
    assert READERS[form](write(text)).arrival.tolist() == [0.0]


def test_zero_tokens_count_as_one(write):
    requests = read_azure(write(AZURE + "0,0,0\n"))
    assert (requests.prompt.tolist(), requests.output.tolist()) == ([1], [1])


def test_a_mooncake_trace_is_read_alike_from_csv_and_from_its_own_json_lines(write):
    rows = [(0, 6758, 500), (3000, 7322, 490), (6100, 20, 3)]
    table = MOONCAKE + "".join(f"{t},{i},{o}\n" for t, i, o in rows)
    lines = "".join(
        json.dumps({"timestamp": t, "input_length": i, "output_length": o, "hash_ids": [1, 2]}) + "\n"
        for t, i, o in rows
    )
    one, other = read_mooncake(write(table)), read_mooncake(write(lines, "trace.jsonl"))
    assert one.arrival.tolist() == other.arrival.tolist()
    assert one.arrival == pytest.approx([0.0, 3.0, 6.1])
    assert one.prompt.tolist() == other.prompt.tolist() == [6758, 7322, 20]


def test_stamps_on_a_grid_are_spread_over_its_step_by_the_seed(write):
    path = write(MOONCAKE + "".join(f"{3000 * (i // 5)},{i + 1},1\n" for i in range(50)))
    spread = read_mooncake(path, seed=1)
    original = 3.0 * ((spread.prompt - 1) // 5)
    assert ((spread.arrival - original >= 0) & (spread.arrival - original < 3)).all()
    assert len(np.unique(spread.arrival)) == 50
    assert read_mooncake(path, seed=1).arrival.tolist() == spread.arrival.tolist()
    assert read_mooncake(path, seed=2).arrival.tolist() != spread.arrival.tolist()


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("t_s,rate_rps\n0,2\n60,4\n", [2.0, 4.0]),
        ("time,rate\n1000,2\n1060,4\n", [2.0, 4.0]),
        ("minute,req_per_min\n0,120\n1,240\n", [2.0, 4.0]),
        ("Minutes,requests_per_minute,note\n0,120,a\n1,240,b\n", [2.0, 4.0]),
        ("minute,req_per_min_mid\n7,120\n8,240\n", [2.0, 4.0]),
    ],
)
def test_a_rate_curve_tells_its_units_by_the_names_of_its_columns(write, text, rates):
    curve = read_rate(write(text))
    assert curve.at([0.0, 59.9, 60.0, 119.0]) == pytest.approx([rates[0], rates[0], rates[1], rates[1]])
    assert (curve.start, curve.end) == (0.0, 120.0)


def test_a_rate_curve_may_be_lines_between_its_points(write):
    curve = read_rate(write("t_s,rate_rps\n0,2\n60,4\n"), lines=True)
    assert curve.at([30.0]) == pytest.approx([3.0])
    assert curve.end == 60.0


def test_a_single_rate_holds_for_a_minute(write):
    assert read_rate(write(RATE + "5,2\n")).total == pytest.approx(120.0)


def test_one_series_of_several_is_picked_by_its_text(write):
    path = write("model,t_s,rate\na,0,1\na,60,1\nb,0,7\nb,60,7\n")
    assert read_rate(path, where={"model": "b"}).peak == 7.0


def test_rows_beyond_the_first_block_are_read_and_checked_with_their_line(write, monkeypatch):
    monkeypatch.setattr("tierkeeper.sim.traffic.table._BLOCK_ROWS", 3)
    text = RATE + "".join(f"{i},{i}\n" for i in range(8))
    assert len(read_rate(write(text)).starts) == 8
    with pytest.raises(TraceError, match="line 10, column t_s: '2' is earlier"):
        read_rate(write(text + "2,1\n"))
    with pytest.raises(TraceError, match="line 10, column rate_rps: 'x' is not a number"):
        read_rate(write(text + "9,x\n"))


@pytest.mark.parametrize("form", ["azure", "mooncake", "rate"])
def test_every_format_becomes_requests_by_its_name(write, form):
    text = {
        "azure": GOOD_AZURE,
        "mooncake": MOONCAKE + "0,5,5\n3000,5,5\n",
        "rate": RATE + "0,10\n60,10\n",
    }[form]
    once = load_requests(write(text), form=form, seed=1)
    assert len(once) > 0
    assert len(load_requests(write(text), form=form, seed=1, factor=3.0)) > len(once)


# --- refused ------------------------------------------------------------------------------------------------------

A, M, R = ("azure", AZURE), ("mooncake", MOONCAKE), ("rate", RATE)
FIRST = "2023-11-16 18:15:46,1,1\n"

BAD_CELLS = [
    # form and header, rows, line, column, problem, remedy
    (A, "yesterday,1,1\n", 2, "TIMESTAMP", "'yesterday' is not a UTC date and time", "write a UTC date and time like"),
    (A, "now,1,1\n", 2, "TIMESTAMP", "'now' is not a UTC date", "write a UTC date"),
    (A, FIRST + "2023-13-40 00:00:00,1,1\n", 3, "TIMESTAMP", "'2023-13-40 00:00:00' is not a UTC date", "write a UTC"),
    (A, "2023-11-16 18:15:46+02:00,1,1\n", 2, "TIMESTAMP", "+02:00' is not a UTC date and time", "write a UTC date"),
    (A, FIRST + "2023-11-16 18:15:45,1,1\n", 3, "TIMESTAMP", "is earlier than the row before it", "sort the file"),
    (A, FIRST + "9999-01-01 00:00:00,1,1\n", 3, "TIMESTAMP", "is too large", "within 400 days of the first row"),
    (
        A,
        FIRST + "2023-11-16 18:15:50.9999999999999999999,1,1\n",
        3,
        "TIMESTAMP",
        "is not a UTC date",
        "write a UTC date",
    ),
    (A, "1700000000000,1,1\n", 2, "TIMESTAMP", "is after the year 3000", "divide milliseconds by 1,000"),
    (M, "1700000000000000,1,1\n", 2, "timestamp_ms", "is after the year 3000", "microseconds by a million"),
    (R, "1700000000000,1\n", 2, "t_s", "is after the year 3000", "divide milliseconds by 1,000"),
    (A, FIRST + ",1,1\n", 3, "TIMESTAMP", "the cell is empty", "write a UTC date"),
    (A, "1e999,1,1\n", 2, "TIMESTAMP", "'1e999' is not a finite number", "or seconds"),
    (A, "0,1,1\nnan,1,1\n", 3, "TIMESTAMP", "'nan' is not a finite number", "or seconds"),
    (A, FIRST + "2023-11-16 18:15:47,abc,1\n", 3, "ContextTokens", "'abc' is not a number", "a whole number of tokens"),
    (A, "0,,1\n", 2, "ContextTokens", "the cell is empty", "write a whole number of tokens from 0 to 10,000,000"),
    (A, "0,-5,1\n", 2, "ContextTokens", "'-5' is negative", "write a whole number of tokens"),
    (A, "0,nan,1\n", 2, "ContextTokens", "'nan' is not a finite number", "write a whole number of tokens"),
    (A, "0,inf,1\n", 2, "ContextTokens", "'inf' is not a finite number", "write a whole number of tokens"),
    (A, "0,12.5,1\n", 2, "ContextTokens", "'12.5' is not a whole number", "write a whole number of tokens"),
    (A, "0,1,99999999999\n", 2, "GeneratedTokens", "'99999999999' is too large", "from 0 to 10,000,000"),
    (A, "0,1,1e400\n", 2, "GeneratedTokens", "'1e400' is not a finite number", "from 0 to 10,000,000"),
    (A, "0,1,0x10\n", 2, "GeneratedTokens", "'0x10' is not a number", "write a whole number"),
    (M, "0,1,1\n-3,1,1\n", 3, "timestamp_ms", "'-3' is negative", "write milliseconds from 0"),
    (M, "3000,1,1\n0,1,1\n", 3, "timestamp_ms", "'0' is earlier than the row before it", "sort the file"),
    (M, "0,1,1\n1e15,1,1\n", 3, "timestamp_ms", "'1e15' is too large", "write milliseconds"),
    (M, "0,long,1\n", 2, "input_length", "'long' is not a number", "write a whole number of tokens"),
    (M, "0,1,-1\n", 2, "output_length", "'-1' is negative", "write a whole number of tokens"),
    (R, "0,1\nsoon,1\n", 3, "t_s", "'soon' is not a number", "write a time from 0, within"),
    (R, "0,1\nnan,1\n", 3, "t_s", "'nan' is not a finite number", "write a time"),
    (R, "0,1\n99999999,1\n", 3, "t_s", "'99999999' is too large", "within 400 days of the first row"),
    (R, "60,1\n0,1\n", 3, "t_s", "'0' is earlier than the row before it", "pick one series if the file holds several"),
    (R, "0,-1\n", 2, "rate_rps", "'-1' is negative", "write a rate from 0 to 1,000,000 requests/s"),
    (R, "0,NaN\n", 2, "rate_rps", "'NaN' is not a finite number", "write a rate"),
    (R, "0,1e9\n", 2, "rate_rps", "'1e9' is too large", "write a rate"),
    (R, "0,ten\n", 2, "rate_rps", "'ten' is not a number", "write a rate"),
    (("rate", "minute,req_per_min\n"), "0,x\n", 2, "req_per_min", "'x' is not a number", "write a rate"),
    (("clients", CLIENTS), "a,0,1,Gamma,-1\n", 2, "p1", "'-1' is negative", "write the law's shape"),
    (("clients", CLIENTS), "a,0,fast,Gamma,1\n", 2, "rate_rps", "'fast' is not a number", "write a rate"),
    (("lengths", "field,quantile,tokens\n"), "input_tokens,50,7\n", 2, "quantile", "'50' is too large", "from 0 to 1"),
    (("lengths", "field,quantile,tokens\n"), "input_tokens,0.5,0\n", 2, "tokens", "'0' is too small", "from 1 to"),
]


@pytest.mark.parametrize(("start", "rows", "line", "column", "problem", "remedy"), BAD_CELLS)
def test_a_bad_cell_is_named_with_its_line_column_value_and_remedy(write, start, rows, line, column, problem, remedy):
    form, header = start
    with pytest.raises(TraceError) as caught:
        READERS[form](write(header + rows))
    assert (caught.value.line, caught.value.column) == (line, column)
    assert f"trace.csv, line {line}, column {column}: " in str(caught.value)
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy


BAD_FILES = [
    # form, content, what the message says
    ("azure", "", "the file is empty; give a CSV with the columns TIMESTAMP, ContextTokens, GeneratedTokens"),
    ("mooncake", "\n \n", "the file is empty"),
    ("rate", "", "the file is empty"),
    ("azure", AZURE, "there is no row of data; give a file with at least one row"),
    ("rate", RATE + "\n\n", "there is no row of data"),
    (
        "azure",
        "TIMESTAMP,GeneratedTokens\n0,1\n",
        "line 1, column ContextTokens: the column is missing, the header has 'TIMESTAMP, GeneratedTokens'; name it",
    ),
    ("rate", "\n\nt_s\n0\n", "line 3, column rate_rps: the column is missing, the header has 't_s'"),
    ("azure", "0,1,1\n1,1,1\n", "column TIMESTAMP: the column is missing, the header has '0, 1, 1'"),
    ("azure", "TIMESTAMP;ContextTokens;GeneratedTokens\n0;1;1\n", "separate the columns with commas"),
    (
        "rate",
        "when,rate\n0,1\n",
        "column t_s: the column is missing, the header has 'when, rate'; name it t_s (or time_s",
    ),
    ("rate", "t_s,load\n0,1\n", "column rate_rps: the column is missing"),
    ("azure", "TIMESTAMP,contexttokens,ContextTokens,GeneratedTokens\n0,1,1,1\n", "two columns have this name; rename"),
    ("rate", "t_s,rate,note,rate\n0,1,,1\n", "line 1, column rate: two columns have this name"),
    ("azure", AZURE + "0,1\n", "line 2: 2 cells where the header has 3; give each row one cell a column"),
    ("azure", AZURE + "0,1,024,5\n", "line 2: 4 cells where the header has 3"),
    ("azure", b"\xff\xfe\x00binary", "is not UTF-8 text; save it as UTF-8"),
    (
        "azure",
        gzip.compress(GOOD_AZURE.encode(), mtime=0)[:40],
        "the gzip data end early or are damaged; copy or download",
    ),
    ("azure", b"\x1f\x8b" + b"no gzip at all", "the gzip data are damaged"),
    ("azure", AZURE + '0,"' + "1" * 200_000 + '",1\n', "line 2: is no CSV"),
    (
        "mooncake",
        '{"timestamp": 0}\n',
        "line 1, column input_length: the column is missing, the header has 'timestamp'",
    ),
    ("mooncake", '{"timestamp": 0,\n', "line 1: '{\"timestamp\": 0,' is no JSON object; write one JSON object a line"),
    (
        "mooncake",
        '{"timestamp": 0, "input_length": 1, "output_length": 1}\n\n{"timestamp": 1, "input_length": 1}\n',
        "line 3, column output_length: the field is missing; give every line all fields",
    ),
    (
        "mooncake",
        '{"timestamp": 0, "input_length": "many", "output_length": 1}\n',
        "line 1, column input_length: 'many' is not a number",
    ),
    (
        "mooncake",
        '{"timestamp": 0, "input_length": null, "output_length": 1}\n',
        "line 1, column input_length: the cell is empty",
    ),
    ("mooncake", '{"timestamp": 0, "input_length": true, "output_length": 1}\n', "'True' is not a number"),
    ("mooncake", '{"timestamp": NaN, "input_length": 1, "output_length": 1}\n', "'nan' is not a finite number"),
    ("rate", RATE + "0,1\n0,2\n", "two rows have the same time, 0 s after the first; keep one row a time"),
    ("clients", CLIENTS + "a,0,1,Pareto,1\na,60,1,Pareto,1\n", "column arrival: 'Pareto' is no arrival law (client a)"),
    ("clients", CLIENTS + "a,0,1,,0\na,60,1,,0\n", "column arrival: '' is no arrival law"),
    ("clients", CLIENTS + "a,0,1,Gamma,0\na,60,1,Gamma,1\n", "column p1: client a: arrival law: shape 0 must be"),
    ("clients", CLIENTS + "a,0,1,Gamma,1\n", "column t_s: the times of client a are no bins of equal length"),
    (
        "clients",
        CLIENTS + "a,0,1,Gamma,1\na,60,1,Gamma,1\nb,0,1,Gamma,1\n",
        "client b has other times than the first one; give every client the same bins",
    ),
    ("lengths", "field,quantile,tokens\ninput_tokens,0.5,7\n", "column field: no row has the field output_tokens"),
    (
        "lengths",
        "field,quantile,tokens\noutput_tokens,0.5,7\ninput_tokens,0.9,7\ninput_tokens,0.5,7\n",
        "input_tokens: lengths: quantiles must lie in [0, 1] and rise; sort the rows of each field by quantile",
    ),
]


@pytest.mark.parametrize(("form", "content", "message"), BAD_FILES)
def test_a_bad_file_is_refused_with_what_to_change(write, form, content, message):
    path = write(content)
    with pytest.raises(TraceError) as caught:
        READERS[form](path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


def test_a_file_that_is_not_there_and_a_folder_are_refused(tmp_path):
    with pytest.raises(TraceError, match=r"none\.csv: cannot be read: No such file or directory; correct the path"):
        read_azure(tmp_path / "none.csv")
    with pytest.raises(TraceError, match="cannot be read: Is a directory; correct the path"):
        read_azure(tmp_path)


def test_a_series_that_is_not_in_the_file_is_named(write):
    path = write("model,t_s,rate\na,0,1\n")
    with pytest.raises(TraceError, match="no row has model = 'c'"):
        read_rate(path, where={"model": "c"})
    with pytest.raises(TraceError, match="column town: the column is missing"):
        read_rate(path, where={"town": "c"})


def test_a_long_value_is_shown_shortened(write):
    with pytest.raises(TraceError) as caught:
        read_rate(write(RATE + f"0,{'x' * 5000}\n"))
    assert len(str(caught.value)) < 400


def test_a_curve_of_more_requests_than_memory_holds_is_refused_with_the_remedy(write):
    path = write(RATE + "0,1000000\n86400,1000000\n")
    with pytest.raises(ValueError, match="scale the rate down or take a shorter part"):
        load_requests(path, form="rate")


def test_a_table_of_text_keeps_its_cells(write):
    table = read_table(write("a,b\nx,1\ny,2\n"), [Column({"b": 2.0}, "a number")], where={"a": "y"})
    assert table.numbers["b"].tolist() == [4.0]
