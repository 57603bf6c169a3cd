"""Every knob of the data plane on one page. Imports nothing heavy: the lineage is planned without pyarrow."""
