"""Images from and to files."""

from __future__ import annotations

import io

import numpy as np
import pytest
import tape_tf as tf

Image = pytest.importorskip("PIL.Image")
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)


def encoded(form: str, array=PIXELS, **options) -> bytes:
    out = io.BytesIO()
    Image.fromarray(array).save(out, form, **options)
    return out.getvalue()


def test_png_is_exact():
    png = tf.io.encode_png(PIXELS)
    np.testing.assert_array_equal(tf.io.decode_png(png).numpy(), PIXELS)
    np.testing.assert_array_equal(tf.image.decode_image(png).numpy(), PIXELS)
    assert tf.io.decode_png(png, channels=1).shape == (6, 5, 1)
    assert tf.io.decode_png(png, channels=4).numpy()[..., 3].min() == 255
    grey = np.arange(12, dtype=np.uint16).reshape(3, 4, 1) * 1000
    again = tf.io.decode_png(tf.io.encode_png(grey), dtype=tf.uint16)
    np.testing.assert_array_equal(again.numpy(), grey)


def test_jpeg_bmp_and_gif():
    smooth = np.tile(np.arange(0, 160, 10, dtype=np.uint8)[:, None, None], (1, 16, 3))
    jpeg = tf.io.encode_jpeg(smooth, quality=100)
    assert tf.io.is_jpeg(jpeg)
    assert tf.io.extract_jpeg_shape(jpeg).numpy().tolist() == [16, 16, 3]
    assert np.abs(tf.io.decode_jpeg(jpeg, channels=3).numpy().astype(int) - smooth).max() <= 4
    np.testing.assert_array_equal(tf.io.decode_bmp(encoded("BMP")).numpy(), PIXELS)
    frames = [Image.fromarray(np.full((4, 4), k, np.uint8)) for k in (0, 255)]
    out = io.BytesIO()
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:])
    assert tf.io.decode_gif(out.getvalue()).numpy()[:, 0, 0, 0].tolist() == [0, 255]
    assert tf.io.decode_image(out.getvalue(), expand_animations=False).shape == (4, 4, 3)
    assert tf.io.decode_image(out.getvalue()).shape == (2, 4, 4, 3)


def test_floats_go_from_0_to_1():
    found = tf.io.decode_image(encoded("PNG"), dtype=tf.float32)
    np.testing.assert_allclose(found.numpy(), PIXELS / 255, rtol=1e-6)


def test_what_is_no_image_is_an_error():
    for data in (b"", b"no image", encoded("PNG")[:40]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="decode_image"):
            tf.io.decode_image(data)
    with pytest.raises(tf.errors.InvalidArgumentError, match="channels must be one of"):
        tf.io.decode_jpeg(encoded("JPEG"), channels=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="scalar"):
        tf.io.decode_png([encoded("PNG")])
    with pytest.raises(tf.errors.InvalidArgumentError, match="an image is uint8"):
        tf.io.encode_png(np.zeros((2, 2, 3), np.float32))


def test_a_file_of_another_format_is_not_opened():
    with pytest.raises(tf.errors.InvalidArgumentError, match="no image in the format"):
        tf.io.decode_image(encoded("TIFF"))


@pytest.mark.each_backend
def test_images_of_other_proportions():
    x = tf.reshape(tf.range(24.0), (1, 4, 6, 1))
    padded = tf.image.resize_with_pad(x, 6, 6, method=tf.image.ResizeMethod.NEAREST_NEIGHBOR)
    assert padded.shape == (1, 6, 6, 1)
    np.testing.assert_array_equal(padded.numpy()[0, 0], 0)
    np.testing.assert_array_equal(padded.numpy()[0, 1:5], x.numpy()[0])
    cut = tf.image.resize_with_crop_or_pad(x, 2, 8)
    np.testing.assert_array_equal(cut.numpy()[0, :, 1:7], x.numpy()[0, 1:3])
    edges = tf.image.sobel_edges(x)
    assert edges.shape == (1, 4, 6, 1, 2)
    # Of a plane, down by 6 and across by 1 for each pixel: 8 times the slope inside.
    assert edges.numpy()[0, 1, 1, 0].tolist() == [48.0, 8.0]
