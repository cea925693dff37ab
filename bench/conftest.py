"""What a benchmark notes beside its time (milliseconds per curve, a ratio) is printed under the tables: it is the figure."""


def pytest_terminal_summary(terminalreporter, config):
    session = getattr(config, "_benchmarksession", None)
    noted = [b for b in (session.benchmarks if session else []) if b.extra_info]
    if noted:
        terminalreporter.section("noted")
    for bench in noted:
        parts = [
            f"{key}: {value:.4g}" if isinstance(value, float) else f"{key}: {value}"
            for key, value in bench.extra_info.items()
        ]
        line = ", ".join(parts)
        terminalreporter.write_line(f"{bench.group}  {bench.name}  {line}")
