"""What is read from the output of programs."""

import unittest

from contestants import executable_of, perftest_median
from place import Skip
from rows import Row, rows_of, show, speed


class Rows(unittest.TestCase):
    def test_rows_are_found_among_other_lines(self):
        text = (
            "loading\n"
            '[1,0]<stdout>:{"name":"one_way/8B","unit":"ns","median":103.2}\n'
            '{"name":"one_way/4KiB","skipped":"no memory"}\n'
            '{"name":"one_way/8B","median":"fast"}\n'
            '{"name":7,"median":1}\n'
            '{"name":"on","median":true}\n'
            '{"median":1}\n'
            "{broken\n"
            "[1, 2]\n"
        )
        names = [(row["name"], row.get("median")) for row in rows_of(text)]
        self.assertEqual(names, [("one_way/8B", 103.2), ("one_way/4KiB", None)])

    def test_stats_are_of_all_rounds(self):
        self.assertEqual(Row("ns", {0: 5.0, 1: 1.0, 4: 3.0}).stats(), (3.0, 1.0, 5.0))

    def test_values_read_well(self):
        read = [show(v, "ns") for v in (103.24, 1234.0, 999999.0, 2.5e6, 3e9)]
        self.assertEqual(read, ["103 ns", "1.23 us", "1 ms", "2.5 ms", "3 s"])
        self.assertEqual(show(1.034, "x"), "1.034 x")

    def test_speed_is_of_what_moved_one_way(self):
        self.assertEqual(speed("raw/one_way/4KiB", 409.6, "ns"), "10.0")
        self.assertEqual(speed("pontoon/link/shm/put_signal/4MiB", 4194304, "ns"), "1.0")
        for name in ("raw/one_way/8B", "raw/flag_rtt/4KiB", "iceoryx2/loan/one_way/4MiB"):
            self.assertEqual(speed(name, 100.0, "ns"), "", name)
        self.assertEqual(speed("mine/one_way/4KiB", 1.1, "x"), "")


class Perftest(unittest.TestCase):
    # As UCX 1.13 and 1.18 print it, the later one without "Final:".
    def test_the_median_is_the_second_number_of_the_last_line(self):
        header = "| Stage | # iterations | 50.0%ile | average | overall |  average |  overall |\n"
        old = (
            header
            + "Final:                 30000      0.102     0.110     0.110  69.3  69.3  9080000\n"
        )
        new = (
            header
            + "  1000   9.500  9.9  9.9  0.8  0.8  100\n  2000   8.250  9.1  9.1  0.8  0.8  1\n"
        )
        self.assertEqual(perftest_median(old), 0.102)
        self.assertEqual(perftest_median(new), 8.25)

    def test_no_figure_is_none(self):
        self.assertIsNone(perftest_median("[1:error] could not connect\n"))


class Cargo(unittest.TestCase):
    def test_the_program_is_the_last_that_was_built(self):
        messages = (
            '{"reason":"compiler-artifact","executable":null}\n'
            '{"reason":"compiler-artifact","executable":"/t/release/pontoon"}\n'
            '{"reason":"build-finished","success":true}\n'
        )
        self.assertEqual(str(executable_of(messages)), "/t/release/pontoon")
        with self.assertRaises(Skip):
            executable_of('{"reason":"build-finished","success":true}\n')


if __name__ == "__main__":
    unittest.main()
