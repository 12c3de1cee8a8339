"""Calls of `scipy.linalg`, `fft`, `signal`, `ndimage`, and of what measures and groups points."""

from __future__ import annotations

import numpy as np

from cases import SciPy

_random = np.random.default_rng(0)
_square = _random.uniform(0.1, 0.6, (3, 3)) + 2 * np.diag([1.0, 1.3, 1.7])
LINALG = SciPy(
    "scipy.linalg",
    "import numpy as np\nfrom scipy.linalg import *",
    {
        "S": _square,
        "T": _random.uniform(0.1, 0.6, (3, 3)) + 2 * np.diag([0.7, 1.1, 1.4]),
        "P": _square @ _square.T,
        "X": _random.uniform(0.3, 0.9, (4, 3)),
        "b": np.asarray([0.3, 0.8, 0.5]),
        "c": np.asarray([2.3, 0.4, 0.6]),
        "bands": np.asarray([[0.0, 0.3, 0.4], [2.0, 2.3, 2.1], [0.2, 0.5, 0.0]]),
        "d": np.asarray([1.3, 2.4, 3.1]),
        "e": np.asarray([0.3, 0.5]),
        "one": np.eye(3),
        "ones": np.ones(4),
    },
    """
solve(S, b)
solve_triangular(S, b)
solve_banded((1, 1), bands, b)
solveh_banded(bands[:2], b)
solve_toeplitz(c, b)
solve_circulant(c, b)
solve_sylvester(S, T, P)
solve_continuous_lyapunov(S, P)
solve_discrete_lyapunov(S / 4, P)
solve_continuous_are(S, T, one, one)
solve_discrete_are(S, T, one, one)
lstsq(X, ones)[0]
inv(S)
pinv(X)
pinvh(P)
det(S)
norm(X)
norm(X, 2)
expm(S)
logm(S)
sqrtm(P)
fractional_matrix_power(P, 0.3)
cosm(S)
sinm(S)
tanhm(S)
signm(S)
expm_frechet(S, T)[1]
funm(S, np.exp)
cholesky(P)
cho_factor(P)[0]
cho_solve((P, True), b)
qr(S)[1]
rq(S)[0]
qz(S, T)[0]
lu(S)[2]
lu_factor(S)[0]
ldl(P)[1]
polar(S)[1]
schur(P)[0]
hessenberg(S)[0]
svd(X)[1]
svdvals(X)
eig(S)[0]
eigh(P)[0]
eigvals(S)
eigvalsh(P)
eigvalsh_tridiagonal(d, e)
eigvals_banded(bands[:2])
null_space(X.T)
orth(X)
subspace_angles(X[:, :1], X[:, 1:2])
orthogonal_procrustes(X, X * 2)[1]
matrix_balance(S)[0]
bandwidth(S)
issymmetric(P)
ishermitian(P)
block_diag(S, T)
toeplitz(c, b)
matmul_toeplitz((c, b), b)
circulant(c)
hankel(c)
companion(c)
convolution_matrix(c, 3)
fiedler(c)
fiedler_companion(c)
leslie(c, b[:2])
khatri_rao(S, T)
diagsvd(b, 3, 3)
""",
    fixed="one ones",
)

FFT = SciPy(
    "scipy.fft",
    "from scipy.fft import *",
    {
        "x": np.asarray([0.3, 0.6, 0.45, 0.8]),
        "X": _random.uniform(0.3, 0.9, (4, 4)),
        "z": np.asarray([0.3 + 0.2j, 0.6 - 0.1j, 0.45j]),
    },
    """
fft(x)
ifft(x)
rfft(x)
irfft(x)
hfft(x)
ihfft(x)
fft2(X)
ifft2(X)
rfft2(X)
irfft2(X)
fftn(X)
ifftn(X)
rfftn(X)
irfftn(X)
hfft2(X)
ihfft2(X)
hfftn(X)
ihfftn(X)
fftshift(x)
ifftshift(x)
dct(x)
dct(x, type=1)
dct(x, type=3, norm="ortho")
dct(x, type=4)
idct(x)
dst(x)
dst(x, type=1)
dst(x, type=3)
dst(x, type=4)
idst(x)
dctn(X)
idctn(X)
dstn(X)
idstn(X)
fht(x, 0.1, 0.5)
ifht(x, 0.1, 0.5)
""",
)

SIGNAL = SciPy(
    "scipy.signal",
    "import numpy as np\nfrom scipy.signal import *",
    {
        "x": _random.standard_normal(32),
        "y": _random.standard_normal(32),
        "h": np.asarray([0.3, 0.5, 0.2]),
        "a": np.asarray([1.0, 0.2, 0.1]),
        "X": _random.standard_normal((4, 5)),
        "K": np.asarray([[0.2, 0.4], [0.1, 0.5]]),
        "times": np.arange(32.0),
        "sos": np.asarray([[0.1, 0.25, 0.1, 1.0, -0.4, 0.2]]),
        "w": np.asarray([0.5, 1.0]),
        "knots": np.asarray([0.0, 1.0, 2.0]),
        "taps": np.asarray([0.2, 0.5, 0.2]),
        "domain": np.ones(3),
        "peaks": np.asarray([2]),
        "Z": _random.uniform(0.3, 0.9, (12, 12)),
    },
    """
convolve(x, h)
convolve(x, h, method="fft")
fftconvolve(x, h)
oaconvolve(x, h)
correlate(x, h)
correlate(x, h, method="fft")
convolve2d(X, K)
correlate2d(X, K)
deconvolve(x, h)[0]
lfilter(h, a, x)
lfilter_zi(h, a)
filtfilt(h, a, x)
sosfilt(sos, x)
sosfiltfilt(sos, x)
sosfilt_zi(sos)
savgol_filter(x, 5, 2)
medfilt(x, 3)
medfilt2d(X, 3)
order_filter(x, domain, 1)
wiener(x)
decimate(x, 2)
detrend(x)
detrend(x, type="constant")
resample(x, 8)
resample_poly(x, 2, 1)
upfirdn(h, x)
hilbert(x)
hilbert2(X)
envelope(x)
czt(x)
zoom_fft(x, 0.5)
periodogram(x)[1]
welch(x, nperseg=16)[1]
csd(x, y, nperseg=16)[1]
coherence(x, y, nperseg=16)[1]
spectrogram(x, nperseg=16)[2]
stft(x, nperseg=16)[2]
istft(stft(x, nperseg=16)[2])[1]
lombscargle(times, x, w)
vectorstrength(x, 3.0)[0]
cspline1d(x)
qspline1d(x)
cspline1d_eval(x, times)
spline_filter(Z, 0.1)
symiirorder1(x, 0.5, 0.3)
sawtooth(times)
square(times)
chirp(x, 1.0, 2.0, 3.0)
gausspulse(x, 0.5)
sweep_poly(x, np.poly1d([1.0, 2.0]))
gauss_spline(x, 2)
freqz(h, worN=5)[1]
freqz_zpk(w, w / 2, 0.5, worN=5)[1]
freqz_sos(sos, worN=5)[1]
freqs(h, a, worN=5)[1]
group_delay((h, a), w=5)[1]
bilinear(h, a)
bilinear_zpk(w, w / 2, 0.5, 1.0)
lp2lp(h, a, 2.0)
lp2hp(h, a, 2.0)
lp2bp(h, a, 2.0, 1.0)
lp2bs(h, a, 2.0, 1.0)
lp2lp_zpk(w, w / 2, 0.5, 2.0)
np.sum(tf2zpk(h, a)[0] ** 2)
tf2sos(h, a)
zpk2tf(w, w / 2, 0.5)
zpk2sos(w, w / 2, 0.5)
sos2tf(sos)
np.sum(sos2zpk(sos)[0] ** 2)
tf2ss(h, a)
normalize(h, a)
residue(h, a)[0]
invres(w, w / 2, [])[0]
minimum_phase(taps)
firwin2(5, knots / 2, taps)
lsim((h, a), x, times)[1]
dlsim((h, a, 1.0), x)[1]
impulse((h, a), T=knots)[1]
find_peaks(x)[0]
peak_prominences(x, peaks)[0]
argrelmax(x)[0]
""",
    fixed="sos knots times domain",
)

NDIMAGE = SciPy(
    "scipy.ndimage",
    "import numpy as np\nfrom scipy.ndimage import *",
    {
        "X": _random.uniform(0.3, 0.9, (5, 6)),
        "x": _random.uniform(0.3, 0.9, 7),
        "K": np.asarray([[0.2, 0.4], [0.1, 0.5]]),
        "h": np.asarray([0.3, 0.5, 0.2]),
        "M": np.asarray([[0.9, 0.1], [0.05, 1.1]]),
        "places": np.asarray([[0.5, 2.3], [1.2, 3.4]]),
        "which": np.asarray([1, 2]),
        "labels": np.asarray([[1, 1, 2, 2, 0, 1]] * 5),
    },
    """
convolve(X, K)
convolve1d(X, h)
correlate(X, K)
correlate1d(X, h)
gaussian_filter(X, 1.0)
gaussian_filter1d(x, 1.0)
gaussian_laplace(X, 1.0)
gaussian_gradient_magnitude(X, 1.0)
uniform_filter(X)
uniform_filter1d(x, 3)
laplace(X)
prewitt(X)
sobel(X)
maximum_filter(X, 3)
minimum_filter(X, 3)
median_filter(X, 3)
percentile_filter(X, 30, 3)
rank_filter(X, 1, 3)
generic_filter(X, np.mean, 3)
vectorized_filter(X, np.mean, size=3)
affine_transform(X, M)
map_coordinates(X, places)
geometric_transform(X, lambda place: (place[0] + 0.3, place[1]))
rotate(X, 20.0, reshape=False)
shift(X, 0.3)
zoom(X, 1.5)
spline_filter(X)
fourier_gaussian(X, 1.0)
fourier_shift(X, 1.0)
fourier_uniform(X, 1.0)
grey_dilation(X, 3)
grey_erosion(X, 3)
grey_opening(X, 3)
grey_closing(X, 3)
morphological_gradient(X, 3)
white_tophat(X, 3)
black_tophat(X, 3)
binary_dilation(X > 0.5)
binary_erosion(X > 0.5)
distance_transform_edt(X > 0.5)
label(X > 0.5)[0]
sum(X, labels, which)
mean(X, labels, which)
variance(X, labels, which)
standard_deviation(X, labels, which)
minimum(X, labels, which)
maximum(X, labels, which)
median(X, labels, which)
center_of_mass(X)
extrema(X)[1]
histogram(X, 0.0, 1.0, 4)
""",
)

SPATIAL = SciPy(
    "scipy.spatial",
    "import numpy as np\nfrom scipy.spatial import ConvexHull, KDTree, distance, distance_matrix\n"
    "from scipy.spatial import geometric_slerp, minkowski_distance, procrustes\n"
    "from scipy.spatial.transform import RigidTransform, Rotation, Slerp",
    {
        "x": np.asarray([0.3, 0.6, 0.45]),
        "y": np.asarray([0.8, 0.1, 0.35]),
        "q": np.asarray([0.1, 0.6, 0.4, 0.7]),
        "X": _random.uniform(0.3, 0.9, (5, 3)),
        "Y": _random.uniform(0.3, 0.9, (4, 3)),
        "V": np.eye(3) * 1.5,
        "ones": np.ones(3),
        "ends": np.asarray([0.0, 1.0]),
        "R": np.asarray([[0.1, 0.2, 0.3], [0.4, 0.1, 0.2]]),
    },
    """
Rotation.from_rotvec(x).as_matrix()
Rotation.from_quat(q).as_matrix()
Rotation.from_euler("xyz", x).as_quat()
Rotation.from_mrp(x).as_rotvec()
Rotation.from_matrix(Rotation.from_rotvec(x).as_matrix()).as_rotvec()
Rotation.from_rotvec(x).apply(y)
(Rotation.from_rotvec(x) * Rotation.from_rotvec(y)).as_euler("xyz")
Rotation.from_rotvec(x).inv().as_quat()
Rotation.from_rotvec(x).magnitude()
Rotation.from_rotvec(R).mean().as_quat()
Rotation.align_vectors(Y, 2 * Y)[0].as_matrix()
RigidTransform.from_translation(x).apply(y)
RigidTransform.from_components(x, Rotation.from_rotvec(y)).as_matrix()
Slerp(ends, Rotation.from_rotvec(R))(0.3).as_rotvec()
geometric_slerp(x / np.linalg.norm(x), y / np.linalg.norm(y), 0.3)
procrustes(X[:4], Y)[2]
distance_matrix(X, Y)
minkowski_distance(x, y)
distance.cdist(X, Y)
distance.cdist(X, Y, "cosine")
distance.pdist(X)
distance.squareform(distance.pdist(X))
distance.euclidean(x, y)
distance.sqeuclidean(x, y)
distance.cityblock(x, y)
distance.chebyshev(x, y)
distance.minkowski(x, y, 3)
distance.cosine(x, y)
distance.correlation(x, y)
distance.canberra(x, y)
distance.braycurtis(x, y)
distance.seuclidean(x, y, ones)
distance.mahalanobis(x, y, V)
distance.jensenshannon(x, y)
distance.directed_hausdorff(X, Y)[0]
KDTree(X).query(Y)[0]
ConvexHull(X).volume
""",
)

CLUSTER = SciPy(
    "scipy.cluster",
    "from scipy.cluster import hierarchy, vq",
    {
        "X": _random.uniform(0.3, 0.9, (6, 2)),
        "C": _random.uniform(0.3, 0.9, (2, 2)),
        "Z": np.asarray([[0.0, 1.0, 0.3, 2.0], [2.0, 3.0, 0.5, 3.0]]),
    },
    """
vq.whiten(X)
vq.vq(X, C)
vq.kmeans(X, 2, rng=0)
vq.kmeans2(X, C, minit="matrix")[0]
hierarchy.linkage(X)
hierarchy.ward(X)
hierarchy.cophenet(Z)
hierarchy.fcluster(Z, 0.4, criterion="distance")
hierarchy.inconsistent(Z)
hierarchy.maxdists(Z)
hierarchy.is_valid_linkage(Z)
hierarchy.leaves_list(Z)
""",
    fixed="Z",
)

SECTIONS = [LINALG, FFT, SIGNAL, NDIMAGE, SPATIAL, CLUSTER]
