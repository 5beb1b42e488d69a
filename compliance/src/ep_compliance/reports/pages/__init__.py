"""The parts of the report page, each a function from results to HTML; `page` puts them together."""
