-- Teams' rights in per cent of the pool. Which GPUs that is depends on the nodes, so the scheduler judges it, not a submit.

ALTER TABLE teams ADD COLUMN percents jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(percents) = 'object');
COMMENT ON COLUMN teams.percents IS 'guarantee, limit, user_limit, class_limits and allowances that are given in per cent of the pool; the same figure in GPUs is absent or 0 then';

-- As before; a right in per cent refuses nothing here.
CREATE OR REPLACE FUNCTION team_objection(
    p_team teams, p_rights_are_set boolean, p_waiting bigint, p_class text, p_gpus integer,
    p_class_needs_allowance boolean, p_not_preemptible boolean, p_hard_group boolean,
    OUT objection text, OUT bound bigint
) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    class_bound bigint := (p_team.class_limits ->> p_class)::bigint;
    class_allowance bigint := coalesce((p_team.allowances ->> p_class)::bigint, 0);
    group_allowance bigint := coalesce((p_team.allowances ->> 'hard_groups')::bigint, 0);
    firm_allowance bigint := coalesce((p_team.allowances ->> 'not_preemptible')::bigint, 0);
    in_percent jsonb := coalesce(p_team.percents -> 'allowances', '{}');
BEGIN
    IF p_gpus > p_team.gpu_limit THEN
        objection := 'team_limit'; bound := p_team.gpu_limit;
    ELSIF p_gpus > p_team.user_limit THEN
        objection := 'user_limit'; bound := p_team.user_limit;
    ELSIF p_gpus > class_bound THEN
        objection := 'class_limit'; bound := class_bound;
    ELSIF p_rights_are_set AND p_class_needs_allowance AND NOT in_percent ? p_class
        AND (class_allowance = 0 OR p_gpus > class_allowance) THEN
        objection := 'class_allowance'; bound := class_allowance;
    ELSIF p_rights_are_set AND p_not_preemptible AND NOT in_percent ? 'not_preemptible'
        AND (firm_allowance = 0 OR p_gpus > firm_allowance) THEN
        objection := 'not_preemptible_allowance'; bound := firm_allowance;
    ELSIF p_rights_are_set AND p_hard_group AND NOT in_percent ? 'hard_groups'
        AND (group_allowance = 0 OR p_gpus > group_allowance) THEN
        objection := 'hard_groups_allowance'; bound := group_allowance;
    ELSIF p_waiting >= p_team.max_queued THEN
        objection := 'queue_full'; bound := p_team.max_queued;
    END IF;
END $$;
