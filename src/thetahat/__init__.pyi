import thetahat.online.external_torque as _external_torque

from .control.computed_torque import ComputedTorque as ComputedTorque
from .data.log import read_log as read_log
from .data.prepare import prepare as prepare
from .data.samples import Samples as Samples
from .dynamics.algorithm1 import regressor_by_unit_parameters as regressor_by_unit_parameters
from .dynamics.configuration import random_configuration as random_configuration
from .dynamics.rigid_body import coriolis_matrix as coriolis_matrix
from .dynamics.rigid_body import forward_dynamics as forward_dynamics
from .dynamics.rigid_body import gravity as gravity
from .dynamics.rigid_body import inverse_dynamics as inverse_dynamics
from .dynamics.rigid_body import kinetic_energy as kinetic_energy
from .dynamics.rigid_body import mass_matrix as mass_matrix
from .dynamics.rigid_body import potential_energy as potential_energy
from .dynamics.rigid_body import regressor as regressor
from .engine.fold_logs import information as information
from .errors import ThetahatError as ThetahatError
from .excite.design import design as design
from .identification.consistency.constraints import Bounds as Bounds
from .identification.consistency.constraints import Constraints as Constraints
from .identification.consistency.constraints import Tie as Tie
from .identification.estimate import Estimate as Estimate
from .identification.estimators.consistent import Consistent as Consistent
from .identification.estimators.instrumental import Instrumental as Instrumental
from .identification.estimators.least_squares import LeastSquares as LeastSquares
from .identification.estimators.positive import Positive as Positive
from .identification.estimators.prior import Prior as Prior
from .identification.estimators.robust import Robust as Robust
from .identification.identifiability.base_parameters import base_parameters as base_parameters
from .identification.information import Information as Information
from .identification.solve import solve as solve
from .identification.tuning.tune import tune as tune
from .model.io.load import load as load
from .model.io.save import save as save
from .model.parameters import from_pinocchio as from_pinocchio
from .model.parameters import to_pinocchio as to_pinocchio
from .model.robot import Robot as Robot
from .online.identifier import OnlineIdentifier as OnlineIdentifier
from .pipeline.identification import Identification as Identification
from .pipeline.identify import identify as identify
from .pipeline.payload import payload as payload
from .pipeline.settings import IdentifySettings as IdentifySettings
from .pipeline.validate import validate as validate
from .plant.plant import OwnPlant as OwnPlant
from .plant.realism import Realism as Realism
from .plant.simulate import simulate as simulate

__version__: str
ExternalTorque = _external_torque.ExternalTorque
