"""Asks two servers of memcached's text protocol the same: memcached_clients.py OURS:PORT MEMCACHED:PORT

First by pymemcache, as a program would, then byte for byte, wrong questions included. Prints what differs; exit code 1 if
anything does.
"""

import re
import socket
import sys

from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError

LONG = "k" * 250

# What is sent, and a word about it. A sentinel (`version`) is sent after each, so that silence is seen as well.
TALKS = [
    ("what was set is got", b"set a 7 0 5\r\nhello\r\nget a\r\n"),
    ("several keys, some missing", b"set b 0 0 1\r\nx\r\nget a no b no2 a\r\n"),
    ("gets has a number", b"gets a b\r\n"),
    ("an empty value", b"set e 0 0 0\r\n\r\nget e\r\n"),
    ("a value that looks like commands", b"set c 0 0 14\r\nget a\r\nquit\r\n\r\n\r\nget c\r\n"),
    ("flags to the last bit", b"set f 4294967295 0 1\r\nx\r\nget f\r\n"),
    ("flags beyond", b"set f 4294967296 0 1\r\nx\r\n"),
    ("negative flags", b"set f -1 0 1\r\nx\r\n"),
    ("expired at once", b"set x 0 -1 1\r\nx\r\nget x\r\n"),
    ("an exptime that is no number", b"set x 0 soon 1\r\nx\r\n"),
    ("no length", b"set x 0 0\r\n"),
    ("a length that is no number", b"set x 0 0 y\r\n"),
    ("a negative length", b"set x 0 0 -1\r\n"),
    ("too much text", b"set x 0 0 1\r\nxyz\r\n"),
    ("set without an answer", b"set q 0 0 1 noreply\r\nx\r\nget q\r\n"),
    ("the longest key", b"set " + LONG.encode() + b" 0 0 1\r\nx\r\nget " + LONG.encode() + b"\r\n"),
    ("a key too long to get", b"get " + LONG.encode() + b"k\r\n"),
    ("a key too long to set", b"set " + LONG.encode() + b"k 0 0 1\r\nx\r\n"),
    ("a key too long to delete", b"delete " + LONG.encode() + b"k\r\n"),
    ("a key too long to count", b"incr " + LONG.encode() + b"k 1\r\n"),
    ("get of nothing", b"get\r\n"),
    ("gets of nothing", b"gets\r\n"),
    ("add of what is there", b"add a 0 0 1\r\ny\r\nget a\r\n"),
    ("add of what is not", b"add new 0 0 1\r\ny\r\nget new\r\n"),
    ("replace of what is not", b"replace none 0 0 1\r\ny\r\nget none\r\n"),
    ("replace of what is there", b"replace new 3 0 2\r\nyy\r\nget new\r\n"),
    ("cas of what is not", b"cas none 0 0 1 1\r\ny\r\n"),
    ("cas of what has changed", b"cas a 0 0 1 999999999\r\ny\r\n"),
    ("cas without a number", b"cas a 0 0 1\r\ny\r\n"),
    ("cas with a word for a number", b"cas a 0 0 1 z\r\ny\r\n"),
    ("delete, twice", b"delete new\r\ndelete new\r\nget new\r\n"),
    ("delete of nothing", b"delete\r\n"),
    ("delete with a zero", b"set z 0 0 1\r\nx\r\ndelete z 0\r\n"),
    ("delete with a time", b"set z 0 0 1\r\nx\r\ndelete z 10\r\nget z\r\n"),
    ("delete with too many words", b"delete a b c d e\r\n"),
    ("delete without an answer", b"set z 0 0 1\r\nx\r\ndelete z noreply\r\nget z\r\n"),
    ("counting", b"set n 0 0 2\r\n41\r\nincr n 1\r\nincr n 8\r\ndecr n 10\r\nget n\r\n"),
    ("counting down ends at nothing", b"set n 0 0 1\r\n5\r\ndecr n 6\r\nget n\r\n"),
    ("counting up goes round", b"set n 0 0 20\r\n18446744073709551615\r\nincr n 2\r\n"),
    ("counting what is not", b"incr none 1\r\ndecr none 1\r\n"),
    ("counting what is no number", b"incr a 1\r\ndecr a 1\r\n"),
    ("by what is no number", b"incr n x\r\ndecr n x\r\n"),
    ("by less than nothing", b"incr n -1\r\n"),
    ("by more than there is", b"incr n 18446744073709551616\r\n"),
    ("by nothing that is said", b"incr n\r\n"),
    ("counting of nothing", b"incr\r\n"),
    ("counting without an answer", b"set n 0 0 1\r\n5\r\nincr n 2 noreply\r\nget n\r\n"),
    ("verbosity", b"verbosity 1\r\nverbosity 0 noreply\r\nverbosity\r\nverbosity a b c\r\n"),
    ("verbosity without an answer", b"verbosity noreply\r\n"),
    ("a command that is none", b"frobnicate a b\r\n"),
    ("an empty line", b"\r\n"),
    ("a bare line feed", b"get a\n"),
    ("words far apart", b"get   a    b  \r\n"),
    ("capitals", b"GET a\r\n"),
    ("many commands at once", b"".join(b"set m%d 0 0 2\r\n%02d\r\n" % (i, i) for i in range(100)) + b"get m0 m50 m99\r\n"),
    ("a large value", b"set l 0 0 500000\r\n" + b"v" * 500000 + b"\r\nget l\r\n"),
    ("a value too large", b"set l 0 0 2000000\r\n" + b"v" * 2000000 + b"\r\n"),
]

# Where memcached itself does not do what its protocol.txt says.
ACCEPTED = {
    "flags beyond": "protocol.txt: flags are numbers of 32 bits",
}


def connect(server):
    host, port = server.rsplit(":", 1)
    return socket.create_connection((host, int(port)), 10)


def talk(server, text):
    """What is answered to this, without the sentinel's answer, and with numbers that may differ taken out."""
    stream = connect(server)
    stream.settimeout(10)
    try:
        stream.sendall(text + b"version\r\n")
        said = b""
        while not re.search(rb"(^|\n)VERSION [^\r\n]*\r\n$", said):
            some = stream.recv(1 << 16)
            if not some:
                return said + b"<closed>"
            said += some
    except socket.timeout:
        return said + b"<silence>"
    except OSError as error:
        return said + b"<" + str(error).encode() + b">"
    finally:
        stream.close()
    said = re.sub(rb"VERSION [^\r\n]*\r\n$", b"", said)
    said = re.sub(rb"(VALUE \S+ \d+ \d+) \d+\r\n", rb"\1 CAS\r\n", said)
    # "Decrementing a number such that it loses length is not guaranteed to decrement its returned length" (protocol.txt).
    return re.sub(rb"(VALUE n \d+ )\d+\r\n(\d+) *\r\n", rb"\1LENGTH\r\n\2\r\n", said)


def program(server):
    """A program's use of pymemcache, and what came of each call."""
    host, port = server.rsplit(":", 1)
    client = Client((host, int(port)), timeout=10, connect_timeout=10, default_noreply=False)
    seen = []

    def see(name, call):
        try:
            seen.append((name, call()))
        except (MemcacheClientError, MemcacheServerError) as error:
            seen.append((name, type(error).__name__ + ": " + str(error)))

    for key in ["p1", "p2", "p3", "count", "word"]:
        client.delete(key)
    see("set", lambda: client.set("p1", b"one", flags=5))
    see("get", lambda: client.get("p1"))
    see("get, missing", lambda: client.get("p9", default="none"))
    see("set_many", lambda: client.set_many({"p2": b"two", "p3": b"three"}))
    see("get_many", lambda: client.get_many(["p1", "p2", "p3", "p9"]))
    see("add, there", lambda: client.add("p1", b"x"))
    see("add, not there", lambda: client.add("p4", b"x"))
    see("replace, there", lambda: client.replace("p4", b"y"))
    see("replace, not there", lambda: client.replace("p9", b"y"))
    value, cas = client.gets("p1")
    see("gets", lambda: value)
    see("cas", lambda: client.cas("p1", b"uno", cas))
    see("cas, stale", lambda: client.cas("p1", b"due", cas))
    see("cas, missing", lambda: client.cas("p9", b"due", cas))
    see("gets_many", lambda: {key: pair[0] for key, pair in client.gets_many(["p1", "p2", "p9"]).items()})
    see("delete", lambda: client.delete("p4"))
    see("delete, missing", lambda: client.delete("p4"))
    see("delete_many", lambda: client.delete_many(["p2", "p3"]))
    see("get_many, deleted", lambda: client.get_many(["p2", "p3"]))
    see("incr, missing", lambda: client.incr("count", 1))
    see("set, a number", lambda: client.set("count", b"41"))
    see("incr", lambda: client.incr("count", 1))
    see("decr", lambda: client.decr("count", 50))
    see("set, a word", lambda: client.set("word", b"word"))
    see("incr, a word", lambda: client.incr("word", 1))
    see("large", lambda: (client.set("large", b"v" * 900_000), len(client.get("large"))))
    see("too large", lambda: client.set("large", b"v" * 3_000_000))
    see("after that", lambda: client.get("p1"))
    see("without an answer", lambda: (client.set("p1", b"drei", noreply=True), client.get("p1"))[1])
    for i in range(2_000):
        client.set(f"many{i % 50}", str(i).encode(), noreply=i % 2 == 0)
    see("many", lambda: client.get_many([f"many{i}" for i in range(50)]))
    client.quit()
    return seen


def main():
    ours, theirs = sys.argv[1:3]
    differ = 0
    for (name, mine), (_, other) in zip(program(ours), program(theirs), strict=True):
        if mine != other:
            differ += 1
            print(f"DIFFERS  pymemcache, {name}: {mine!r}, and memcached {other!r}")
    for name, text in TALKS:
        mine, other = talk(ours, text), talk(theirs, text)
        if mine != other and name in ACCEPTED:
            print(f"accepted {name}: {mine[:120]!r}, and memcached {other[:120]!r}: {ACCEPTED[name]}")
        elif mine != other:
            differ += 1
            print(f"DIFFERS  {name}: {mine[:120]!r}, and memcached {other[:120]!r}")
    print(f"{len(TALKS)} conversations byte for byte, and a program by pymemcache: {differ} differ from memcached")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
