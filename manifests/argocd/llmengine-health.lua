-- Health of an LLMEngine or EngineArtifact in Argo CD, by the rules of kstatus.
local health = {status = "Progressing", message = "Waiting for the operator"}
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return health
end
local found = {}
for _, condition in ipairs(obj.status.conditions or {}) do
  found[condition.type] = condition
end
local function holds(name)
  return found[name] ~= nil and found[name].status == "True"
end
if holds("Stalled") then
  return {status = "Degraded", message = found.Stalled.message}
end
if holds("Ready") and not holds("Reconciling") then
  return {status = "Healthy", message = found.Ready.message}
end
local why = found.Reconciling or found.Ready
if why ~= nil then
  health.message = why.message
end
return health
