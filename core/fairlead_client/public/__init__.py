"""The public API's endpoints by what they are about; `fairlead_client.client.ControlApi` has them all."""
