"""The public API's endpoints, grouped by subject; `fairlead_client.client.ControlApi` has them all."""
