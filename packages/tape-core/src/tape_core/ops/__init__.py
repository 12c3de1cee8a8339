"""The ops, a file per chapter of the Array API standard, plus those beyond it."""
