"""Names that would do harm, if a page took them for markup or code."""

# Each would leave a mark on `window` if it became markup or code.
HOSTILE = [
    "</script><script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 2'>",
    "<!--<script>",
    "\"'`${window.pwned = 3}&lt;&quot;",
    "\u0000\u0007\u001b[31m\u2028\u202egnp.exe",
    "🦙🔥 naïve 模型",
    "x" * 10_000,
    "{{data}}]]>",
]
