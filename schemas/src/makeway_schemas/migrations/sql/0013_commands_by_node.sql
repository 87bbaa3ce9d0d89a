-- Whether a newer command about the same node was carried out is asked for each that comes.
CREATE INDEX commands_by_node ON commands (node_id, command_id) WHERE node_id IS NOT NULL;
