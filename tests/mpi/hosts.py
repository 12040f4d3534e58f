# SPDX-License-Identifier: Apache-2.0
"""Two hosts on one machine: network namespaces with a cable between them, and a stand-in for ssh that enters them."""
import os
import shlex
import shutil
import subprocess
import tempfile

CASES = ("conformance", "block: bf16, sequence_parallel, full",
         "failures: a rank that does not come is named by all, large", "failures: another rank aborts")


class Cannot(Exception):
    """Why this machine cannot do it."""


def call(*command):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              text=True)
    except OSError as e:
        raise Cannot(f"because {command[0]} does not run: {e.strerror}") from e
    if done.returncode != 0:
        lines = done.stdout.strip().splitlines() or [f"exit status {done.returncode}"]
        raise Cannot(f"because network namespaces cannot be made ({' '.join(command)}: {lines[-1]})")


class TwoHosts:
    def __enter__(self):
        for tool in ("ip", "unshare", "hostname"):
            if shutil.which(tool) is None:
                raise Cannot(f"because there is no command {tool}")
        self.names = [f"mdlm-{letter}-{os.getpid()}" for letter in "ab"]
        self.addresses = ["10.213.77.1", "10.213.77.2"]
        self.folder = tempfile.TemporaryDirectory(prefix="mdlm-hosts-")
        try:
            for name in self.names:
                call("ip", "netns", "add", name)
                call("ip", "-n", name, "link", "set", "lo", "up")
            call("ip", "-n", self.names[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns",
                 self.names[1])
            for name, address in zip(self.names, self.addresses):
                call("ip", "-n", name, "address", "add", address + "/24", "dev", "cable")
                call("ip", "-n", name, "link", "set", "cable", "up")
        except Cannot:
            self.__exit__()
            raise
        # Called as ssh is: a host, then the words of a command. Each host has a name of its own and forgets nothing of
        # the environment.
        self.shell = os.path.join(self.folder.name, "shell")
        with open(self.shell, "w") as file:
            file.write("#!/bin/sh\nhost=$1\nshift\ncase $host in\n")
            for name, address in zip(self.names, self.addresses):
                enter = " ".join(map(shlex.quote, self.enter(name)))
                file.write(f"{address}) exec {enter} sh -c 'hostname \"$0\" && eval \"$1\"' {name} \"$*\" ;;\n")
            file.write("*) echo \"no such host: $host\" >&2; exit 1 ;;\nesac\n")
        os.chmod(self.shell, 0o700)
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.folder.cleanup()

    @staticmethod
    def enter(name):
        return ["ip", "netns", "exec", name, "unshare", "--uts"]

    def crossed(self):
        """Bytes that the first host has sent to the second."""
        path = "/sys/class/net/cable/statistics/tx_bytes"
        return int(subprocess.run([*self.enter(self.names[0]), "cat", path], check=True, stdout=subprocess.PIPE,
                                  text=True).stdout)

    def mpirun(self, mpirun, size):
        """The words that start size ranks, half of them on each host, from the first one; the program's follow."""
        if "--oversubscribe" not in mpirun:
            raise Cannot("because this mpirun is not Open MPI's")
        slots = ",".join(f"{address}:{size // 2}" for address in self.addresses)
        return [*self.enter(self.names[0]), "sh", "-c", 'hostname "$0" && exec "$@"', self.names[0], *mpirun, "-n",
                str(size), "--host", slots, "--map-by", "slot", "--mca", "plm_rsh_agent", self.shell, "--mca",
                "oob_tcp_if_include", "10.213.77.0/24", "--mca", "btl_tcp_if_include", "10.213.77.0/24", "--mca", "btl",
                "self,vader,tcp", "--mca", "pml", "ob1"]
