"""Ratios, and the tables they are shown in."""

import unittest

import report
from compare import ratios
from rounds import Sitting
from rows import Row


def row(values, line=None, unit="ns", vs=()):
    """Rounds from 0; `line` is the round trip before and after each."""
    lines = {k: (it, it) for k, it in enumerate(line or [])}
    return Row(unit, dict(enumerate(values)), lines, list(vs))


def pairs(rows, rules=(), own=("pontoon",)):
    return {(it.row, it.rival): it for it in ratios(rows, set(own), list(rules))}


OURS = "pontoon/link/shm/put_signal/8B"


class Comparable(unittest.TestCase):
    def test_metric_size_and_way_must_agree(self):
        rows = {
            OURS: row([100.0]),
            "pontoon/link/ucx-tcp/put_signal/8B": row([9000.0]),
            "pontoon/link/shm/put_signal/8B/ratio/raw": row([1.0], unit="x"),
            "raw/one_way/8B": row([100.0]),
            "raw/one_way/4KiB": row([100.0]),
            "raw/flag_rtt/8B": row([100.0]),
            "mpi/put/one_sided/8B": row([10.0]),
            "ucx/put_tcp/one_way/8B": row([9000.0]),
            "mooncake/tcp/write/8B": row([40000.0]),
            "nixl/write/8B": row([3000.0]),
        }
        tcp = "pontoon/link/ucx-tcp/put_signal/8B"
        expected = {
            (OURS, "raw/one_way/8B"),
            (tcp, "ucx/put_tcp/one_way/8B"),
            (tcp, "mooncake/tcp/write/8B"),
        }
        self.assertEqual(set(pairs(rows)), expected)

    def test_units_must_agree(self):
        rows = {OURS: row([100.0]), "raw/one_way/8B": row([0.1], unit="us")}
        self.assertEqual(pairs(rows), {})

    def test_a_rule_takes_the_place_of_what_is_comparable(self):
        rows = {
            OURS: row([100.0]),
            "raw/one_way/8B": row([50.0]),
            "raw/flag_rtt/8B": row([200.0]),
            "raw/flag_rtt/4KiB": row([200.0]),
        }
        found = pairs(rows, ["put_signal/*=raw/flag_rtt/*"])
        self.assertEqual([key[1] for key in found], ["raw/flag_rtt/8B"])
        self.assertEqual(found[OURS, "raw/flag_rtt/8B"].median, 0.5)

    def test_a_program_may_name_a_row_of_another_size(self):
        rows = {"mine/x/8B": row([1.0], vs=["raw/memcpy/4KiB"]), "raw/memcpy/4KiB": row([2.0])}
        self.assertEqual(list(pairs(rows, own=["mine"])), [("mine/x/8B", "raw/memcpy/4KiB")])


class Ratios(unittest.TestCase):
    def ratio(self, ours, theirs):
        return pairs({OURS: ours, "raw/one_way/8B": theirs})[OURS, "raw/one_way/8B"]

    def test_they_are_formed_round_by_round(self):
        # The ratio of the medians would be 2.
        it = self.ratio(row([100.0, 200.0, 900.0]), row([100.0, 100.0, 900.0]))
        self.assertEqual((it.median, it.least, it.most, it.rounds), (1.0, 1.0, 2.0, 3))

    def test_rounds_on_different_machines_do_not_count(self):
        it = self.ratio(row([100.0, 300.0], [100, 300]), row([100.0, 100.0], [100, 100]))
        self.assertEqual((it.median, it.rounds, it.alike), (1.0, 1, True))

    def test_where_no_round_is_alike_all_count_and_it_is_said(self):
        it = self.ratio(row([300.0], [300]), row([100.0], [100]))
        self.assertEqual((it.median, it.rounds, it.alike), (3.0, 1, False))

    def test_a_round_that_one_of_them_missed_does_not_count(self):
        theirs = Row("ns", {1: 50.0, 2: 0.0})
        it = self.ratio(row([100.0, 100.0, 100.0]), theirs)
        self.assertEqual((it.median, it.rounds), (2.0, 1))
        self.assertEqual(pairs({OURS: row([1.0]), "raw/one_way/8B": theirs}), {})


class Tables(unittest.TestCase):
    def test_a_rival_a_line_and_sizes_in_order(self):
        base = "pontoon/link/ucx-tcp/put_signal"
        rows = {
            f"{base}/4MiB": row([1e6]),
            f"{base}/8B": row([100.0, 100.0]),
            "ucx/put_tcp/one_way/8B": row([200.0, 100.0]),
            "ucx/put_tcp/one_way/4MiB": row([4e6], [7]),
            "mooncake/tcp/write/8B": row([1000.0]),
        }
        text = report.comparison(rows, ratios(rows, {"pontoon"}, []))
        lines = [line.split("  ") for line in text.splitlines() if line]
        cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
        self.assertEqual(cells[0], [base, "8B", report.RATIO, "4MiB", report.RATIO])
        self.assertEqual(cells[1], ["ours", "100 ns", "1 ms"])
        ucx = [
            "ucx/put_tcp/one_way",
            "150 ns",
            "0.75x (0.50-1.00, 2)",
            "4 ms",
            "0.25x (0.25-0.25, 1)",
        ]
        self.assertEqual(cells[2], ucx)
        self.assertEqual(cells[3], ["mooncake/tcp/write *", "1 us", "0.10x (0.10-0.10, 1)", "-"])
        self.assertTrue(text.splitlines()[-2].startswith("* mooncake/tcp/write: until"))

    def test_what_was_never_alike_is_marked(self):
        rows = {OURS: row([1.0], [100]), "raw/one_way/8B": row([1.0], [300])}
        text = report.comparison(rows, ratios(rows, {"pontoon"}, []))
        self.assertIn("1.00x (1.00-1.00, 1) ~\n", text)
        self.assertTrue(text.splitlines()[-1].startswith("~ "))

    def test_ratios_far_from_one_keep_their_digits(self):
        found = [report.times(it) for it in (0.00283, 0.094, 0.94, 1.5, 195.7)]
        self.assertEqual(found, ["0.0028", "0.094", "0.94", "1.50", "196"])

    def test_nothing_to_compare_is_no_table(self):
        self.assertEqual(report.comparison({}, []), "")
        self.assertEqual(report.figures({}), "")

    def test_a_busy_machine_and_what_is_missing_are_said(self):
        text = report.remarks(Sitting(skipped={"ucx": "not installed"}, busy=[0.02, 0.5]))
        self.assertIn("skipped: ucx: not installed\n", text)
        self.assertIn("2% to 50% busy", text)
        self.assertEqual(report.remarks(Sitting(busy=[0.02])), "")


if __name__ == "__main__":
    unittest.main()
