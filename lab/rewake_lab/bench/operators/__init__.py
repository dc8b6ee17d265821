"""`rewake bench operators`: operators beside databases that compute the same."""
