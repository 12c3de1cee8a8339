"""Calls of scikit-learn, with `array_api_dispatch=True`."""

from __future__ import annotations

import numpy as np

from cases import Section

_random = np.random.default_rng(0)
SAMPLES = {
    "X": _random.uniform(0.3, 2, (9, 3)),
    "Y": _random.uniform(0.3, 2, (9, 3)),
    "x": _random.uniform(0.3, 2, 9),
    "y": _random.uniform(0.3, 2, 9),
    "labels": np.asarray([0, 1, 0, 1, 1, 0, 0, 1, 1]),
    "guesses": np.asarray([0, 1, 1, 1, 1, 0, 0, 0, 1]),
    "p": _random.uniform(0.1, 0.9, 9),
}
DISPATCH = "import sklearn\n\nsklearn.set_config(array_api_dispatch=True)\n"

METRICS = """
metrics.mean_squared_error(y, x)
metrics.root_mean_squared_error(y, x)
metrics.mean_absolute_error(y, x)
metrics.mean_absolute_percentage_error(y, x)
metrics.median_absolute_error(y, x)
metrics.mean_squared_log_error(y, x)
metrics.max_error(y, x)
metrics.mean_pinball_loss(y, x)
metrics.mean_tweedie_deviance(y, x)
metrics.mean_poisson_deviance(y, x)
metrics.mean_gamma_deviance(y, x)
metrics.r2_score(y, x)
metrics.d2_tweedie_score(y, x)
metrics.explained_variance_score(y, x)
metrics.accuracy_score(labels, guesses)
metrics.f1_score(labels, guesses)
metrics.precision_score(labels, guesses)
metrics.recall_score(labels, guesses)
metrics.confusion_matrix(labels, guesses)
metrics.log_loss(labels, p)
metrics.brier_score_loss(labels, p)
metrics.roc_auc_score(labels, p)
metrics.hinge_loss(labels, p)
metrics.pairwise.cosine_similarity(X, Y)
metrics.pairwise.cosine_distances(X, Y)
metrics.pairwise.euclidean_distances(X, Y)
metrics.pairwise.manhattan_distances(X, Y)
metrics.pairwise.linear_kernel(X, Y)
metrics.pairwise.polynomial_kernel(X, Y)
metrics.pairwise.rbf_kernel(X, Y)
metrics.pairwise.laplacian_kernel(X, Y)
metrics.pairwise.sigmoid_kernel(X, Y)
metrics.pairwise.chi2_kernel(X, Y)
metrics.pairwise.pairwise_distances(X, Y)
metrics.silhouette_score(X, labels)
"""

ESTIMATORS = """
preprocessing.StandardScaler().fit_transform(X) ** 3
preprocessing.MinMaxScaler().fit_transform(X)
preprocessing.MaxAbsScaler().fit_transform(X)
preprocessing.RobustScaler().fit_transform(X)
preprocessing.Normalizer().fit_transform(X)
preprocessing.normalize(X)
preprocessing.scale(X) ** 3
preprocessing.Binarizer(threshold=1.0).fit_transform(X)
preprocessing.KernelCenterer().fit_transform(X @ X.T)
preprocessing.PolynomialFeatures(2).fit_transform(X)
preprocessing.LabelEncoder().fit_transform(labels)
preprocessing.label_binarize(labels, classes=[0, 1])
decomposition.PCA(2, svd_solver="full").fit(X).explained_variance_
decomposition.PCA(2, svd_solver="full").fit_transform(X) ** 2
linear_model.Ridge(solver="svd").fit(X, y).coef_
linear_model.Ridge(solver="svd").fit(X, y).predict(Y)
linear_model.RidgeCV().fit(X, y).coef_
linear_model.LinearRegression().fit(X, y).coef_
linear_model.LogisticRegression().fit(X, labels).coef_
linear_model.LogisticRegression().fit(X, labels).predict_proba(Y)
discriminant_analysis.LinearDiscriminantAnalysis().fit(X, labels).decision_function(Y)
naive_bayes.GaussianNB().fit(X, labels).predict_log_proba(Y)
mixture.GaussianMixture(2, init_params="random", random_state=0).fit(X).score_samples(Y)
mixture.GaussianMixture(2, covariance_type="diag", init_params="random", random_state=0).fit(X).score_samples(Y)
kernel_approximation.Nystroem(n_components=4, random_state=0).fit_transform(X)
covariance.EmpiricalCovariance().fit(X).covariance_
svm.SVR().fit(X, y).predict(Y)
neighbors.KNeighborsRegressor().fit(X, y).predict(Y)
cluster.KMeans(2, random_state=0).fit(X).cluster_centers_
ensemble.RandomForestRegressor(3, random_state=0).fit(X, y).predict(Y)
model_selection.train_test_split(X, y, random_state=0)
utils.extmath.randomized_svd(X, 2, random_state=0)[1]
utils.extmath.softmax(X)
"""

SECTIONS = [
    Section(
        "scikit-learn",
        f"{DISPATCH}from sklearn import metrics",
        SAMPLES,
        METRICS,
        "metrics",
        packages=("scikit-learn", "scipy"),
    ),
    Section(
        "scikit-learn",
        f"{DISPATCH}from sklearn import cluster, covariance, decomposition, discriminant_analysis, ensemble\n"
        "from sklearn import kernel_approximation, linear_model, mixture, model_selection, naive_bayes\n"
        "from sklearn import neighbors, preprocessing, svm, utils",
        SAMPLES,
        ESTIMATORS,
        "estimators",
        packages=("scikit-learn", "scipy"),
    ),
]
