"""The experiments' data: brought whole or not at all, read as published, cut as LSTNet does."""

from __future__ import annotations

import gzip
import io
import itertools
import os
import pickle
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

pytest.importorskip("numpy")
pytest.importorskip("pooch")
pytest.importorskip("tqdm")
import numpy as np
import pooch

from deu.experiments import data
from deu.experiments.data import cifar, download, image_sets, series_files
from deu.experiments.data.files import load
from deu.experiments.data.idx import read_idx
from deu.experiments.data.published import Published, checksum, gunzip

BODY = bytes(range(256)) * 400  # of a file to download


class Site:
    """A web server in this process, which can be told to misbehave."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.files = {"/file": BODY}
        self.ranges = True
        self.cuts: list[int] = []  # after how many bytes to hang up, a request each
        self.delay = 0.0
        self.asked: list[tuple[str, str | None]] = []  # paths and ranges

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers["Range"]
        self.asked.append((request.path, wanted))
        time.sleep(self.delay)
        if request.path not in self.files:
            request.send_error(404)
            return
        body = self.files[request.path]
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        if not self.ranges:
            start = 0
        elif start >= len(body):
            request.send_error(416)
            return
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(body) - start))
        request.send_header("Content-Encoding", "gzip")  # as some do of files that end in .gz
        request.end_headers()
        end = start + self.cuts.pop(0) if self.cuts else None
        request.wfile.write(body[start:end])

    def published(self, kind: str = "md5", body: bytes = BODY) -> Published:
        return Published("folder/file", checksum(body, kind), (f"{self.url}/file",))


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("NO_PROXY", "*")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.answer(self)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site = Site(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield site
        server.shutdown()
        thread.join()


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address where nobody answers."""
    monkeypatch.setenv("NO_PROXY", "*")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_data_root_is_the_one_given_or_the_environments_or_the_cache(monkeypatch):
    monkeypatch.setenv("DEU_DATA", "~/sets")
    assert data.data_root("here") == Path("here")
    assert data.data_root(None) == Path.home() / "sets"
    monkeypatch.setenv("DEU_DATA", "")
    assert data.data_root() == pooch.os_cache("deu")


# Downloads


@pytest.mark.parametrize("kind", ["md5", "sha256", "git"])
def test_a_missing_file_is_brought_once_and_put_in_place_whole(kind, site, tmp_path):
    file = site.published(kind)
    assert load(file, tmp_path) == BODY
    assert load(file, tmp_path) == BODY
    assert visible(tmp_path / "folder") == ["file"]
    assert site.asked == [("/file", None)]


def test_a_cut_download_goes_on_where_it_stopped(site, tmp_path):
    site.cuts = [1000, 2000, 0]
    with pytest.raises(data.DataError, match="cut off after 3,000 bytes"):
        load(site.published(), tmp_path)
    assert visible(tmp_path / "folder") == ["file.part"]
    assert [wanted for _, wanted in site.asked] == [None, "bytes=1000-", "bytes=3000-"]
    assert load(site.published(), tmp_path) == BODY
    assert site.asked[-1] == ("/file", "bytes=3000-")
    assert visible(tmp_path / "folder") == ["file"]


@pytest.mark.parametrize(
    ("part", "ranges", "asked"),
    [
        (BODY[:500], True, ["bytes=500-"]),
        (BODY[:500], False, ["bytes=500-"]),  # sends the whole file instead
        (BODY, True, [f"bytes={len(BODY)}-"]),  # stopped before it was put in place
        (b"other", True, ["bytes=5-", None]),
        (BODY + b"more", True, [f"bytes={len(BODY) + 4}-", None]),
    ],
)
@pytest.mark.parametrize("kind", ["md5", "git"])
def test_whatever_a_former_try_left_the_file_comes_out_right(
    kind, part, ranges, asked, site, tmp_path
):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file.part").write_bytes(part)
    site.ranges = ranges
    assert load(site.published(kind), tmp_path) == BODY
    assert [wanted for _, wanted in site.asked] == asked


def test_a_server_that_always_hangs_up_is_given_up(site, tmp_path):
    site.ranges = False
    site.cuts = [1000 + i for i in range(99)]
    with pytest.raises(data.DataError, match="cut off"):
        load(site.published(), tmp_path)
    assert len(site.asked) == download.TRIES


@pytest.mark.parametrize("kind", ["md5", "git"])
def test_a_file_with_another_checksum_is_not_kept(kind, site, tmp_path):
    file = site.published(kind, body=b"what was published")
    with pytest.raises(data.DataError, match=file.checksum) as caught:
        load(file, tmp_path)
    assert checksum(BODY, kind).partition(":")[2] in str(caught.value)
    assert visible(tmp_path / "folder") == []
    assert len(site.asked) == 1


def test_addresses_are_tried_in_turn(site, nowhere, tmp_path):
    file = site.published()
    file = file._replace(urls=(f"{nowhere}/file", f"{site.url}/gone", *file.urls))
    assert load(file, tmp_path) == BODY
    with pytest.raises(data.DataError) as caught:
        load(file._replace(path="other", urls=file.urls[:2]), tmp_path)
    assert f"{nowhere}/file: no connection; {site.url}/gone: 404 Not Found" in str(caught.value)


def test_the_next_address_goes_on_from_what_the_last_one_gave(site, tmp_path):
    site.files["/again"] = BODY
    site.cuts = [1000, 0]
    file = site.published()
    assert load(file._replace(urls=(*file.urls, f"{site.url}/again")), tmp_path) == BODY
    assert site.asked[-1] == ("/again", "bytes=1000-")


def test_threads_that_ask_at_once_download_once(site, tmp_path):
    site.delay = 0.2
    got: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: got.append(load(site.published(), tmp_path)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [BODY] * 4
    assert len(site.asked) == 1


def test_processes_that_ask_at_once_download_once(site, tmp_path):
    site.delay = 1.0
    code = (
        "import sys; from deu.experiments.data.files import load, Published\n"
        "path, checksum, url, root = sys.argv[1:]\n"
        "print(len(load(Published(path, checksum, (url,)), root)))"
    )
    path, md5, (url,) = site.published()
    command = [sys.executable, "-c", code, path, md5, url, str(tmp_path)]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [int(run.communicate(timeout=60)[0]) for run in runs] == [len(BODY)] * 2
    assert len(site.asked) == 1


# What is missing or damaged


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("mnist", "MNIST/raw/train-images-idx3-ubyte.gz"),
        ("fashion-mnist", "FashionMNIST/raw/train-images-idx3-ubyte.gz"),
        ("cifar10", "cifar-10-python.tar.gz"),
        ("exchange_rate", "timeseries/exchange_rate.txt.gz"),
    ],
)
def test_without_network_an_error_says_what_is_missing_and_what_to_do(
    name, path, nowhere, tmp_path, monkeypatch
):
    if name in image_sets.IDX:
        folder, _, files = image_sets.IDX[name]
        monkeypatch.setitem(image_sets.IDX, name, (folder, (f"{nowhere}/",), files))
    monkeypatch.setattr(cifar, "ARCHIVE", cifar.ARCHIVE._replace(urls=(f"{nowhere}/{path}",)))
    urls = (f"{nowhere}/exchange_rate.txt.gz",)
    published = series_files.LSTNET["exchange_rate"]._replace(urls=urls)
    monkeypatch.setitem(series_files.LSTNET, "exchange_rate", published)
    read = data.series if name == "exchange_rate" else data.images
    for turned_off in (False, True):
        with pytest.raises(data.DataError) as caught:
            read(name, tmp_path, download=not turned_off)
        message = str(caught.value)
        assert f"{path} is missing: it is expected at {tmp_path / path}." in message
        assert f"{nowhere}/{Path(path).name}" in message
        assert "--data DIR" in message
        assert "DEU_DATA=DIR" in message
        assert ("Downloading is turned off" in message) == turned_off
        assert ("no connection" in message) != turned_off


def test_a_directory_that_cannot_be_made_is_an_error_that_says_so(site, tmp_path):
    (tmp_path / "folder").write_text("a file")
    with pytest.raises(data.DataError, match=r"Downloading it failed: .*folder"):
        load(site.published(), tmp_path)


def test_a_damaged_file_is_named_and_left_alone(site, tmp_path):
    path = tmp_path / "folder" / "file"
    path.parent.mkdir()
    path.write_bytes(BODY[:-1])
    with pytest.raises(
        data.DataError, match=f"{path} is damaged.*102,399 bytes.*once it is deleted"
    ):
        load(site.published(), tmp_path)
    assert path.read_bytes() == BODY[:-1]
    assert site.asked == []


PACKED = gzip.compress(BODY)


@pytest.mark.parametrize(
    "content",
    [PACKED[:-1], PACKED[:100], PACKED[:-8] + b"12345678", b"<html>", PACKED + b"x"],
    ids=["cut short", "cut off", "another sum", "a page", "too long"],  # gzip has the time in it
)
def test_what_does_not_unpack_is_named(content):
    with pytest.raises(data.DataError, match=r"a\.gz is damaged.*does not unpack"):
        gunzip(Path("a.gz"), content)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "it has 0 bytes, and its header alone takes 8"),
        (struct.pack(">II", 2051, 1) + b"a", "it begins with the number 2051.* with 2049"),
        (struct.pack(">II", 2049, 3) + b"ab", "it says 3 bytes and holds 2"),
        (struct.pack(">II", 2049, 3) + b"abcd", "it says 3 bytes and holds 4"),
    ],
)
def test_an_idx_file_of_the_wrong_form_is_named(content, problem):
    with pytest.raises(data.DataError, match=f"labels is damaged.*{problem}"):
        read_idx(Path("labels"), bytearray(content), 1)


# Images


def idx(array: np.ndarray) -> bytes:
    header = struct.pack(f">{1 + array.ndim}I", 2048 + array.ndim, *array.shape)
    return gzip.compress(header + array.tobytes())


@pytest.fixture
def small_mnist(site, monkeypatch) -> list[np.ndarray]:
    """MNIST's files with other images in them, published by our own server."""
    folder, _, files = image_sets.IDX["mnist"]
    random = np.random.default_rng(0)
    arrays = []
    sums = {}
    for name, n in zip(files, (20, 20, 10, 10), strict=True):
        shape, levels = ((n, 28, 28), 256) if "images" in name else ((n,), 10)
        arrays.append(random.integers(levels, size=shape, dtype=np.uint8))
        site.files[f"/{name}"] = idx(arrays[-1])
        sums[name] = checksum(site.files[f"/{name}"], "md5")
    monkeypatch.setitem(image_sets.IDX, "mnist", (folder, (f"{site.url}/",), sums))
    return arrays


def test_mnist_is_brought_laid_out_and_read(small_mnist, site, tmp_path):
    for _ in range(2):
        found = data.images("mnist", tmp_path)
        train_x, train_y, test_x, test_y = small_mnist
        assert torch.equal(found.train_x, torch.from_numpy(train_x)[:, None])
        assert torch.equal(found.test_x, torch.from_numpy(test_x)[:, None])
        assert torch.equal(found.train_y, torch.from_numpy(train_y).long())
        assert torch.equal(found.test_y, torch.from_numpy(test_y).long())
    assert found.shape == (1, 28, 28)
    assert visible(tmp_path / "MNIST" / "raw") == sorted(image_sets.IDX["mnist"][2])
    assert len(site.asked) == 4


def test_labels_that_do_not_match_their_images_are_named(small_mnist, site, tmp_path):
    name = "t10k-labels-idx1-ubyte.gz"
    site.files[f"/{name}"] = idx(np.zeros(9, dtype=np.uint8))
    image_sets.IDX["mnist"][2][name] = checksum(site.files[f"/{name}"], "md5")
    with pytest.raises(data.DataError, match=f"{name} is damaged.*9 labels for 10 images"):
        data.images("mnist", tmp_path)


def batch(pixels: np.ndarray, labels: list[int]) -> bytes:
    """A pickle in the form of CIFAR-10's: Python 2's strings, an array by its old names."""
    raw = pixels.tobytes()
    shape = b"(" + b"".join(b"J" + struct.pack("<i", n) for n in pixels.shape) + b"t"
    return (
        b"\x80\x02}(U\x06labels](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
        b"U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01" + shape + b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        b"T" + struct.pack("<i", len(raw)) + raw + b"tbu."
    )


@pytest.fixture
def small_cifar(site, monkeypatch) -> dict[str, bytes]:
    """CIFAR-10's archive with other images in it, and things that should not be there."""
    random = np.random.default_rng(0)
    batches = {}
    for name in (*cifar.TRAIN, *cifar.TEST):
        pixels = random.integers(256, size=(4, 3072), dtype=np.uint8)
        batches[name] = batch(pixels, random.integers(10, size=4).tolist())
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        extra = {"../evil": b"", "other": b"", "batches.meta": b"names"}
        for name, body in {**extra, **batches}.items():
            member = tarfile.TarInfo(f"{cifar.FOLDER}/{name}")
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    site.files["/cifar"] = packed.getvalue()
    archive_sum = checksum(packed.getvalue(), "md5")
    published = cifar.ARCHIVE._replace(checksum=archive_sum, urls=(f"{site.url}/cifar",))
    monkeypatch.setattr(cifar, "ARCHIVE", published)
    for part in ("TRAIN", "TEST"):
        sums = {name: checksum(batches[name], "md5") for name in getattr(cifar, part)}
        monkeypatch.setattr(cifar, part, sums)
    return batches


def test_cifar_is_brought_unpacked_and_read(small_cifar, site, tmp_path):
    found = data.images("cifar10", tmp_path)
    assert found.train_x.shape == (20, 3, 32, 32)
    assert found.test_x.shape == (4, 3, 32, 32)
    assert found.train_x.dtype == torch.uint8
    assert found.train_y.dtype == torch.int64
    third = small_cifar["data_batch_3"]
    assert found.train_x[8:12].numpy().tobytes() in third
    assert bytes(found.train_y[8:12].tolist()) == third[15:23:2]
    assert visible(tmp_path) == [cifar.FOLDER, "cifar-10-python.tar.gz"]
    assert visible(tmp_path / cifar.FOLDER) == sorted([*small_cifar, "batches.meta"])

    (tmp_path / "cifar-10-python.tar.gz").unlink()
    data.images("cifar10", tmp_path, download=False)
    (tmp_path / cifar.FOLDER / "test_batch").unlink()
    with pytest.raises(data.DataError, match=rf"{cifar.FOLDER}/test_batch is missing.*tar\.gz"):
        data.images("cifar10", tmp_path, download=False)
    assert len(site.asked) == 1


def test_an_archive_that_lacks_a_batch_is_named(small_cifar, tmp_path, monkeypatch):
    monkeypatch.setitem(cifar.TRAIN, "data_batch_6", "md5:")
    with pytest.raises(data.DataError, match=r"tar\.gz is damaged.*it has no .*/data_batch_6"):
        data.images("cifar10", tmp_path)


def test_a_damaged_batch_is_named(small_cifar, tmp_path):
    data.images("cifar10", tmp_path)
    path = tmp_path / cifar.FOLDER / "data_batch_2"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(data.DataError, match=f"{path} is damaged"):
        data.images("cifar10", tmp_path)


class Evil:
    def __init__(self, function: object, *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> object:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    ("function", "arguments"),
    [(os.mkdir, ("made",)), (eval, ("1",)), (getattr, (dict, "get")), (np.load, ("file",))],
)
def test_a_pickle_builds_arrays_and_nothing_else(
    function, arguments, protocol, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps({b"data": Evil(function, *arguments), b"labels": []}, protocol)
    with pytest.raises(data.DataError, match=r"data_batch_1 is damaged.* not allowed"):
        cifar.read_batch(Path("data_batch_1"), content)
    assert visible(tmp_path) == []


PIXELS = np.zeros((2, 3072), dtype=np.uint8)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>",
        pickle.dumps([1, 2]),
        pickle.dumps({b"data": [[1, 2]], b"labels": [1]}),
        batch(PIXELS, [1]),
        batch(PIXELS, [1, 2])[:-9],
        batch(PIXELS[:, :-1], [1, 2]),
    ],
)
def test_what_is_no_batch_is_named(content):
    assert len(cifar.read_batch(Path("batch"), batch(PIXELS, [1, 2]))[0]) == 2
    with pytest.raises(data.DataError, match="batch is damaged"):
        cifar.read_batch(Path("batch"), content)


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_images_are_normalised_by_channel_over_the_training_set(name, dtype):
    images = data.synthetic_images(name, 50, 20, seed=1)
    plain = images.train_x.double() / 255
    mean, std = plain.mean((0, 2, 3)), plain.std((0, 2, 3), correction=0)
    torch.testing.assert_close(images.mean, mean)
    torch.testing.assert_close(images.std, std)
    want = (images.test_x.double() / 255 - mean[:, None, None]) / std[:, None, None]
    found = images.normalised(images.test_x, dtype)
    torch.testing.assert_close(found, want.to(dtype))


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_synthetic_images_can_be_told_apart_and_are_named_synthetic(name):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    images, again, other = (data.synthetic_images(name, 500, 200, seed=s) for s in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert images.name == f"synthetic {name}"
    assert images.train_x.dtype == torch.uint8
    assert images.train_y.dtype == torch.int64
    assert torch.equal(images.train_x, again.train_x)
    assert not torch.equal(images.train_x, other.train_x)
    x, test = (images.normalised(x).flatten(1) for x in (images.train_x, images.test_x))
    centres = torch.stack([x[images.train_y == c].mean(0) for c in range(10)])
    guess = torch.cdist(test, centres).argmin(1)
    assert (guess == images.test_y).float().mean() > 0.8


@pytest.mark.parametrize(
    "call",
    [
        lambda: data.images("cifar", "nowhere"),
        lambda: data.synthetic_images("cifar", 10, 10, seed=0),
    ],
)
def test_a_name_that_is_no_set_is_answered_with_those_there_are(call):
    with pytest.raises(ValueError, match=r"no set of images 'cifar'.* mnist, fashion-mnist"):
        call()


@pytest.mark.parametrize("sizes", [(0, 1), (1, 0)])
def test_synthetic_data_of_no_size_is_refused(sizes):
    with pytest.raises(ValueError, match=f"not {sizes[0]} and {sizes[1]}"):
        data.synthetic_images("mnist", *sizes)
    with pytest.raises(ValueError, match=f"not {sizes[0]} × {sizes[1]}"):
        data.synthetic_series(*sizes)


# Series

NUMBERS = [[1.0, -2.0], [3.5, 4e3], [5.0, 6.0]]
ROWS = "1,-2\n3.5,4e3\n5,6\n"


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", ROWS),
        ("a.txt", ROWS.strip()),
        ("a.txt", ROWS + "\n\n"),
        ("a.txt", ROWS.replace("\n", "\r\n")),
        ("a.txt", "\ufeff" + ROWS),
        ("a.txt", ROWS.replace(",", ", ")),
        ("a.txt", "one,two\n" + ROWS),
        ("a.data", ROWS),
        ("a.txt", "2020-01-01,1,-2\n2020-01-02,3.5,4e3\n2020-01-03,5,6\n"),
        ("a.csv", "one,two\n" + ROWS),
        ("a.csv", "773869,767541\n" + ROWS),  # the names of sensors
        ("a.csv", "date,one,two\n2020-01-01,1,-2\n2020-01-02,3.5,4e3\n2020-01-03,5,6\n"),
        ("a.csv", 'when,"one, first",two\n1 May,1,-2\n2 May,3.5,4e3\n3 May,5,6\n'),
        ("a.csv", "Date,one,two\n20200101,1,-2\n20200102,3.5,4e3\n20200103,5,6\n"),
        ("a.csv", ",one,two\n0,1,-2\n1,3.5,4e3\n2,5,6\n"),
    ],
)
def test_series_are_read_from_any_comma_separated_file(name, text, suffix, tmp_path):
    content = text.encode()
    path = tmp_path / (name + suffix)
    path.write_bytes(gzip.compress(content) if suffix else content)
    found = data.series(path, "nowhere")
    assert found.dtype == torch.float64
    assert found.tolist() == NUMBERS


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.txt", "1,2\n3\n5,6\n", "a.txt, line 2: 1 column, where line 1 has 2"),
        ("a.csv", "a,b\n1,2\n3,4,5\n", "a.csv, line 3: 3 columns, where line 1 has 2"),
        ("a.csv", "a,b,c\n1,2\n", "a.csv, line 2: 2 columns, where line 1 has 3"),
        ("a.txt", "1,2\n3,nan\n", "a.txt, line 2: value 2 is nan"),
        ("a.csv", "date,a\nx,1\nx,inf\n", "a.csv, line 3: value 1 is inf"),
        ("a.txt", "1,2\n3,\n", "a.txt, line 2: '' is not a number"),
        ("a.txt", "1,2\n3,4x\n", "a.txt, line 2: '4x' is not a number"),
        ("a.txt", "1,2\n\n3,4\n", "a.txt, line 2: it is empty"),
        ("a.txt", "", "a.txt is damaged.* it has no numbers"),
        ("a.csv", "a,b\n", "a.csv is damaged.* it has no numbers"),
        ("a.txt", "1,2\n\xff,3\n", "a.txt is damaged.* not comma-separated text"),
        ("a.txt", "1,2\n3,\0\n", r"a.txt, line 2: '\\x00' is not a number"),
        ("a.txt", '1,2\n3,"4\n', "a.txt is damaged.* not comma-separated text"),
        ("a.txt.gz", "1,2\n", "a.txt.gz is damaged.* it does not unpack"),
    ],
)
def test_a_series_of_the_wrong_form_is_named_with_its_line(name, text, problem, tmp_path):
    (tmp_path / name).write_bytes(text.encode("latin1"))
    with pytest.raises(data.DataError, match=problem):
        data.series(tmp_path / name, "nowhere")


def test_series_are_found_by_name_in_the_data_directory(tmp_path):
    (tmp_path / "timeseries").mkdir()
    (tmp_path / "timeseries" / "heat.txt.gz").write_bytes(gzip.compress(ROWS.encode()))
    (tmp_path / "timeseries" / "traffic.txt").write_text(ROWS)  # unpacked by hand
    for name in ("heat", "heat.txt.gz", "traffic"):
        assert data.series(name, tmp_path, download=False).tolist() == NUMBERS
    with pytest.raises(data.DataError) as caught:
        data.series("cold", tmp_path)
    assert "no series 'cold'" in str(caught.value)
    assert "traffic, solar-energy, electricity, exchange_rate" in str(caught.value)
    assert f"{tmp_path / 'timeseries'} has heat.txt.gz, traffic.txt." in str(caught.value)


def test_published_series_are_brought_and_checked(site, tmp_path, monkeypatch):
    site.files["/file"] = gzip.compress(ROWS.encode())
    file = site.published("git", site.files["/file"])._replace(path="timeseries/electricity.txt.gz")
    monkeypatch.setitem(series_files.LSTNET, "electricity", file)
    assert data.series("electricity", tmp_path).tolist() == NUMBERS
    path = tmp_path / "timeseries" / "electricity.txt.gz"
    path.write_bytes(gzip.compress(b"1,2\n"))
    with pytest.raises(data.DataError, match=f"{path} is damaged"):
        data.series("electricity", tmp_path)


def test_synthetic_series_repeat_with_their_seed():
    one, again, other = (data.synthetic_series(400, 3, seed=s) for s in (0, 0, 1))
    assert one.shape == (400, 3)
    assert one.dtype == torch.float64
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    day = one[24:] - one[:-24]  # less than half a day apart
    assert day.abs().mean() < (one[12:] - one[:-12]).abs().mean()


# Windows and metrics


def lstnet(series: np.ndarray, window: int, horizon: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Every pair of each part, step by step, by the rules of LSTNet's code."""
    n = len(series)
    scaled = np.stack([column / np.abs(column).max() for column in series.T], axis=1)
    borders = [window + horizon - 1, int(0.6 * n), int((0.6 + 0.2) * n), n]
    parts = []
    for first, end in itertools.pairwise(borders):
        x, y = [], []
        for target in range(first, end):
            last = target - horizon
            x.append([scaled[step] for step in range(last - window + 1, last + 1)])
            y.append(scaled[target])
        parts.append((np.array(x), np.array(y)))
    return parts


@pytest.mark.parametrize("steps", [50, 51, 57, 64, 99])
@pytest.mark.parametrize(("window", "horizon"), [(1, 1), (5, 1), (7, 3), (5, 24)])
def test_windows_are_those_of_a_loop(steps, window, horizon):
    series = data.synthetic_series(steps, 3, seed=steps) - 20
    split = data.windows(series, window=window, horizon=horizon, dtype=torch.float64)
    for part, (x, y) in zip(split, lstnet(series.numpy(), window, horizon), strict=True):
        assert len(part) == len(y)
        for index in (torch.arange(len(part)), slice(None), torch.tensor([-1, 0])):
            found_x, found_y = part[index]
            chosen = index if isinstance(index, slice) else index.numpy()
            torch.testing.assert_close(found_x, torch.from_numpy(x[chosen]))
            torch.testing.assert_close(found_y, torch.from_numpy(y[chosen]))
        one_x, one_y = part[len(part) - 1]
        assert (one_x.shape, one_y.shape) == ((window, 3), (3,))
        with pytest.raises(IndexError):
            part[torch.tensor([len(part)])]


def test_borders_are_those_of_lstnets_floats():
    for n in range(10, 60_000, 7):
        assert (n * 6 // 10, n * 8 // 10) == (int(0.6 * n), int((0.6 + 0.2) * n))


def test_windows_share_one_series_and_give_back_its_units():
    series = data.synthetic_series(400, 3, seed=0)
    series[:, 1] = 0
    split = data.windows(series)
    assert split.train.window == 168
    assert all(part.values is split.train.values for part in split)
    assert split.train.values.dtype == torch.float32
    assert split.train.scale[1] == 1
    moved = split.test.to("cpu")
    _, y = moved[torch.arange(len(moved))]
    torch.testing.assert_close(y * moved.scale, series[320:].float())


@pytest.mark.parametrize(
    ("shape", "options", "problem"),
    [
        ((100,), {}, r"\(steps, variables\), not \(100,\)"),
        ((100, 2), {"window": 0}, "not 0 and 3"),
        ((100, 2), {"horizon": 0}, "not 168 and 0"),
        ((100, 2), {}, "100 steps is too short .* 60 steps, must have more than 170"),
        ((100, 2), {"window": 58, "horizon": 3}, "too short"),
    ],
)
def test_windows_that_cannot_be_cut_are_an_error(shape, options, problem):
    with pytest.raises(ValueError, match=problem):
        data.windows(torch.ones(shape), **options)
    assert len(data.windows(torch.ones(100, 2), window=57, horizon=3).train) == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_metrics_are_those_of_numpy(dtype):
    truth = data.synthetic_series(60, 5, seed=0).to(dtype)
    truth[:, 2] = 0.1
    prediction = truth + torch.randn_like(truth)
    p, y = prediction.double().numpy(), truth.double().numpy()
    n, m = y.shape
    spread = np.sqrt(((y - y.mean()) ** 2).sum() / (n * m - 1) * (n - 1) / n)
    want = np.sqrt(((p - y) ** 2).sum() / (n * m)) / spread
    assert data.rse(prediction, truth) == pytest.approx(want, rel=1e-12)
    pairs = [np.corrcoef(p[:, i], y[:, i])[0, 1] for i in range(m) if i != 2]
    assert data.corr(prediction, truth) == pytest.approx(np.mean(pairs), rel=1e-12)
    assert data.corr(7 * prediction, truth) == pytest.approx(np.mean(pairs), rel=1e-6)
    prediction[:, 0] = 0.3
    assert data.corr(prediction, truth) == pytest.approx(np.sum(pairs[1:]) / 4, rel=1e-12)


@pytest.mark.parametrize("metric", [data.rse, data.corr])
@pytest.mark.parametrize(("p", "y"), [((4,), (4,)), ((4, 2), (4, 1)), ((1, 2), (1, 2))])
def test_metrics_refuse_shapes_that_do_not_fit(metric, p, y):
    with pytest.raises(ValueError, match="must both have the shape"):
        metric(torch.ones(p), torch.ones(y))


# The real files, where they are


def real(path: str) -> Path:
    root = os.environ.get("DEU_DATA")
    if not root:
        pytest.skip("DEU_DATA names no directory with the real data")
    if not (Path(root) / path).exists():
        pytest.skip(f"DEU_DATA has no {path}")
    return Path(root)


@pytest.mark.parametrize(
    ("name", "path", "mean", "std", "zeros"),
    [
        ("mnist", "MNIST/raw", [0.1307], [0.3081], 5923),
        ("fashion-mnist", "FashionMNIST/raw", [0.2860], [0.3530], 6000),
        ("cifar10", cifar.FOLDER, [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616], 5000),
    ],
)
def test_real_images(name, path, mean, std, zeros):
    images = data.images(name, real(path), download=False)
    assert len(images.train_x) == len(images.train_y) == (50_000 if name == "cifar10" else 60_000)
    assert len(images.test_x) == len(images.test_y) == 10_000
    assert images.train_y.bincount()[0] == zeros
    assert images.train_y.max() == images.test_y.max() == 9
    assert images.mean.tolist() == pytest.approx(mean, abs=1e-4)
    assert images.std.tolist() == pytest.approx(std, abs=1e-4)


def test_real_exchange_rates():
    root = real("timeseries/exchange_rate.txt.gz")
    rates = data.series("exchange_rate", root, download=False)
    assert rates.shape == (7588, 8)
    assert rates[0].tolist() == [
        *(0.785500, 1.611000, 0.861698, 0.634196),
        *(0.211242, 0.006838, 0.593000, 0.525486),
    ]
    assert [len(part) for part in data.windows(rates, horizon=3)] == [4382, 1518, 1518]


@pytest.mark.parametrize(("name", "variables"), [("ETTh1.csv.gz", 7), ("los_speed.csv.gz", 207)])
def test_real_series_with_headers(name, variables):
    root = real(f"timeseries/{name}")
    found = data.series(name, root)
    assert found.shape[1] == variables
    assert found.abs().max() < 200  # a sensor's name would be larger
