"""Calls of `scipy.stats`."""

from __future__ import annotations

import numpy as np

from cases import SciPy

_random = np.random.default_rng(0)
SAMPLES = {
    "x": _random.uniform(0.3, 2, 9),
    "y": _random.uniform(0.3, 2, 9),
    "z": _random.uniform(0.3, 2, 9),
    "p": np.asarray([0.04, 0.2, 0.5, 0.7]),
    "X": _random.uniform(0.3, 2, (9, 3)),
    "Y": _random.uniform(0.3, 2, (9, 3)),
    "long": _random.uniform(0.3, 2, 24),
    "counts": np.asarray([3.0, 5.0, 8.0, 4.0]),
    "expected": np.asarray([4.0, 5.0, 6.0, 5.0]),
    "mean": np.asarray([0.3, 0.1, 0.4]),
    "zero": np.zeros(3),
    "shares": np.asarray([0.2, 0.3, 0.5]),
}
SETUP = "import numpy as np\nfrom scipy.stats import *"

SUMMARIES = """
gmean(X)
hmean(X)
pmean(X, 2.5)
expectile(x, 0.3)
moment(X, 3)
skew(X)
kurtosis(X)
variation(X)
sem(X)
describe(X)
mode(x)
tmean(X)
tvar(X)
tstd(X)
tsem(X)
tmin(X, 0.1)
tmax(X, 10.0)
trim_mean(X, 0.1)
kstat(X)
kstatvar(X)
lmoment(X)
iqr(X)
median_abs_deviation(X)
gstd(X)
quantile(x, 0.3)
scoreatpercentile(x, 30)
percentileofscore(x, 1.0)
entropy(X)
entropy(x, y)
differential_entropy(x)
circmean(X)
circvar(X)
circstd(X)
directional_stats(X).mean_direction
bayes_mvs(x)[0].statistic
mvsdist(x)[0].mean()
zscore(X)
gzscore(X)
zmap(X, Y)
boxcox(x, 0.7)
boxcox_llf(0.7, x)
boxcox_normmax(x)
yeojohnson(x, 0.7)
yeojohnson_llf(0.7, x)
sigmaclip(x)[0]
trimboth(X, 0.1)
trim1(x, 0.1)
obrientransform(x, y)
rankdata(x)
cumfreq(x, 4)[0]
relfreq(x, 4)[0]
binned_statistic(y, x, bins=2).statistic
wasserstein_distance(x, y)
energy_distance(x, y)
"""

TESTS = """
ttest_1samp(X, 0.3).statistic
ttest_1samp(X, 0.3).pvalue
ttest_ind(X, Y).statistic
ttest_ind(X, Y).pvalue
ttest_rel(X, Y).statistic
ttest_rel(X, Y).pvalue
ttest_ind_from_stats(x, y, 9, z, y, 9).statistic
f_oneway(X, Y).statistic
f_oneway(X, Y).pvalue
alexandergovern(x, y).statistic
pearsonr(x, y).statistic
pearsonr(x, y).pvalue
spearmanr(x, y).statistic
spearmanrho(x, y).statistic
kendalltau(x, y).statistic
weightedtau(x, y).statistic
somersd(x, y).statistic
chatterjeexi(x, y).statistic
pointbiserialr(x > 1.0, y).statistic
linregress(x, y).slope
linregress(x, y).intercept
linregress(x, y).pvalue
siegelslopes(x, y).slope
theilslopes(x, y).slope
normaltest(long).statistic
normaltest(long).pvalue
skewtest(X).statistic
kurtosistest(long).statistic
jarque_bera(long).statistic
jarque_bera(long).pvalue
shapiro(x).statistic
anderson(x, method="interpolate").statistic
bartlett(x, y).statistic
levene(x, y).statistic
fligner(x, y).statistic
ansari(x, y).statistic
mood(x, y).statistic
chisquare(counts, np.sum(counts) * expected / np.sum(expected)).statistic
power_divergence(counts, np.sum(counts) * expected / np.sum(expected), lambda_="cressie-read").statistic
chi2_contingency(X).statistic
friedmanchisquare(x, y, z).statistic
kruskal(x, y).statistic
mannwhitneyu(x, y).pvalue
wilcoxon(x, y).statistic
brunnermunzel(x, y).statistic
ranksums(x, y).statistic
median_test(x, y).statistic
ks_1samp(x, norm.cdf).statistic
ks_2samp(x, y).statistic
cramervonmises(x, "norm").statistic
cramervonmises_2samp(x, y).statistic
epps_singleton_2samp(x, y).statistic
combine_pvalues(p).statistic
combine_pvalues(p).pvalue
combine_pvalues(p, method="stouffer").statistic
false_discovery_control(p)
tukey_hsd(x, y, z).statistic
dunnett(x, y, control=z, rng=0).statistic
bootstrap((x,), np.mean, n_resamples=9, rng=0).standard_error
permutation_test((x, y), lambda u, v: np.mean(u) - np.mean(v), n_resamples=9, rng=0).statistic
monte_carlo_test(x, norm.rvs, lambda u, axis: np.mean(u, axis=axis), n_resamples=9).statistic
"""

DISTRIBUTIONS = """
norm.pdf(x, y, z)
norm.logpdf(x, y, z)
norm.cdf(x, y, z)
norm.ppf(p)
norm.fit(x)
gamma.logpdf(x, 2.5)
gamma.cdf(x, 2.5)
beta.logpdf(p, 1.5, 2.5)
t.logpdf(x, 3.5)
chi2.logpdf(x, 3.0)
expon.logpdf(x)
lognorm.logpdf(x, 0.7)
laplace.logpdf(x)
cauchy.logpdf(x)
uniform.logpdf(p)
poisson.logpmf(2, x)
binom.logpmf(2, 5, p)
multivariate_normal.logpdf(mean, zero)
multivariate_normal.logpdf(zero, mean)
multivariate_t.logpdf(mean, zero)
dirichlet.logpdf(shares, mean)
Normal(mu=x, sigma=y).logpdf(z)
Uniform(a=0.0, b=x).logpdf(0.2)
gaussian_kde(x)(y)
"""


SECTIONS = [
    SciPy("scipy.stats", SETUP, SAMPLES, SUMMARIES, "summaries and transformations"),
    SciPy("scipy.stats", SETUP, SAMPLES, TESTS, "tests and correlation"),
    SciPy("scipy.stats", SETUP, SAMPLES, DISTRIBUTIONS, "distributions", fixed="zero shares"),
]
